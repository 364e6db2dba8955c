//! The command line.

use tower::BoxError;

pub(crate) const USAGE: &str = "\
usage: storm [--json] [--seed N] [--upstream URL --model NAME [--slots N]]

  --json          print one JSON object instead of the table
  --seed N        another load of the same shape (default 7)
  --upstream URL  a smaller storm for a real OpenAI-compatible server, such as http://127.0.0.1:8089/v1
  --model NAME    the model to ask for there
  --slots N       how many calls that server serves at a time (default 4)";

#[derive(Debug)]
pub(crate) struct Args {
    pub(crate) json: bool,
    pub(crate) seed: u64,
    pub(crate) real: Option<Real>,
}

/// A server that is not ours.
#[derive(Clone, Debug)]
pub(crate) struct Real {
    pub(crate) url: String,
    pub(crate) model: String,
    pub(crate) slots: usize,
}

impl Args {
    /// `None` asks for the usage.
    pub(crate) fn parse(mut words: impl Iterator<Item = String>) -> Result<Option<Self>, BoxError> {
        let (mut json, mut seed, mut url, mut model, mut slots) = (false, 7, None, None, 4);
        while let Some(word) = words.next() {
            let mut value = || words.next().ok_or_else(|| format!("{word} needs a value"));
            match word.as_str() {
                "--json" => json = true,
                "--seed" => seed = value()?.parse()?,
                "--upstream" => url = Some(value()?),
                "--model" => model = Some(value()?),
                "--slots" => slots = value()?.parse()?,
                "--help" | "-h" => return Ok(None),
                _ => return Err(format!("unknown argument {word}, see --help").into()),
            }
        }
        let real = match (url, model) {
            (Some(url), Some(model)) => Some(Real { url, model, slots }),
            (None, None) => None,
            _ => return Err("--upstream and --model go together".into()),
        };
        Ok(Some(Self { json, seed, real }))
    }
}
