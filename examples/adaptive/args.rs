//! What was asked for.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use tower_inflight::controller::KneeConfig;

#[derive(Debug)]
pub(crate) struct Args {
    /// `None`: the embedded gateway.
    pub(crate) upstream: Option<String>,
    pub(crate) model: String,
    /// What the bearer token starts with: gateways that limit by key take each run for another client.
    pub(crate) key: String,
    pub(crate) limits: Vec<Start>,
    pub(crate) callers: u32,
    pub(crate) tokens: u32,
    pub(crate) runs_for: Duration,
    pub(crate) is_json: bool,
    /// Where a picture of the runs goes.
    pub(crate) plot: Option<PathBuf>,
}

/// A limit that stays, or where one begins that does not.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Start {
    Fixed(u32),
    Adaptive(Initial),
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Initial(u32);

const USAGE: &str = "adaptive [--upstream URL --model NAME] [--limits N,adaptive:N,...] [--callers N] [--tokens N] \
                     [--secs N] [--key TEXT] [--json] [--plot FILE.svg]";

impl Args {
    pub(crate) fn parse(mut words: impl Iterator<Item = String>) -> Result<Self, String> {
        let mut args = Self {
            upstream: None,
            model: "acme/smart".to_owned(),
            key: "key".to_owned(),
            limits: vec![Start::Adaptive(Initial(16)), Start::Adaptive(Initial(1)), Start::Fixed(8), Start::Fixed(16)],
            callers: 24,
            tokens: 30,
            runs_for: Duration::from_secs(20),
            is_json: false,
            plot: None,
        };
        while let Some(word) = words.next() {
            let mut value = || words.next().ok_or_else(|| format!("{word} needs a value\n{USAGE}"));
            match word.as_str() {
                "--json" => args.is_json = true,
                "--plot" => args.plot = Some(value()?.into()),
                "--upstream" => args.upstream = Some(value()?),
                "--model" => args.model = value()?,
                "--key" => args.key = value()?,
                "--limits" => args.limits = value()?.split(',').map(str::parse).collect::<Result<_, _>>()?,
                "--callers" => args.callers = count(&word, &value()?)?,
                "--tokens" => args.tokens = count(&word, &value()?)?,
                "--secs" => args.runs_for = Duration::from_secs(u64::from(count(&word, &value()?)?)),
                _ => return Err(USAGE.to_owned()),
            }
        }
        Ok(args)
    }
}

fn count(what: &str, text: &str) -> Result<u32, String> {
    text.parse().ok().filter(|count| (1..=100_000).contains(count)).ok_or_else(|| format!("{what}: 1 to 100000"))
}

impl FromStr for Start {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.split_once(':') {
            Some(("adaptive", initial)) => Ok(Self::Adaptive(Initial(count("--limits", initial)?))),
            Some(_) => Err(USAGE.to_owned()),
            None => Ok(Self::Fixed(count("--limits", text)?)),
        }
    }
}

impl fmt::Display for Start {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fixed(slots) => write!(f, "{slots}"),
            Self::Adaptive(initial) => write!(f, "adaptive:{initial}"),
        }
    }
}

impl fmt::Display for Initial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl From<Initial> for KneeConfig {
    fn from(Initial(initial_limit): Initial) -> Self {
        Self { initial_limit, ..Self::default() }
    }
}
