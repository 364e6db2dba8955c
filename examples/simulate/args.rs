//! What was asked for.

use crate::contestants::NAMES;

#[derive(Debug)]
pub(crate) struct Args {
    pub(crate) form: Form,
    pub(crate) scenario: Option<String>,
    pub(crate) controller: Option<String>,
    pub(crate) seeds: u64,
    /// Where limits that adapt begin, instead of where the scenario says.
    pub(crate) initial: Option<u32>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    Table,
    Json,
    Plot,
    /// The golden text of one scenario and controller.
    Trajectory,
}

const MOST_INITIAL: u32 = 100_000;

const USAGE: &str =
    "simulate [--scenario NAME] [--controller NAME] [--seeds N] [--initial N] [--json | --plot | --trajectory]";

impl Args {
    pub(crate) fn parse(mut words: impl Iterator<Item = String>) -> Result<Self, String> {
        let mut args = Self { form: Form::Table, scenario: None, controller: None, seeds: 3, initial: None };
        while let Some(word) = words.next() {
            let mut value = || words.next().ok_or_else(|| format!("{word} needs a value\n{USAGE}"));
            match word.as_str() {
                "--json" => args.form = Form::Json,
                "--plot" => args.form = Form::Plot,
                "--trajectory" => args.form = Form::Trajectory,
                "--scenario" => args.scenario = Some(value()?),
                "--controller" => args.controller = Some(known(value()?)?),
                "--seeds" => args.seeds = value()?.parse().map_err(|error| format!("--seeds: {error}"))?,
                "--initial" => args.initial = Some(initial(&value()?)?),
                _ => return Err(USAGE.to_owned()),
            }
        }
        args.seeds = args.seeds.max(1);
        Ok(args)
    }

    pub(crate) fn takes(&self, controller: &str) -> bool {
        self.controller.as_deref().is_none_or(|wanted| wanted == controller)
    }
}

fn initial(text: &str) -> Result<u32, String> {
    let limit = text.parse().map_err(|error| format!("--initial: {error}"))?;
    if (1..=MOST_INITIAL).contains(&limit) { Ok(limit) } else { Err(format!("--initial: 1 to {MOST_INITIAL}")) }
}

fn known(name: String) -> Result<String, String> {
    if NAMES.contains(&name.as_str()) {
        Ok(name)
    } else {
        Err(format!("no controller {name:?}, expected one of {}", NAMES.join(", ")))
    }
}
