//! What is printed at the end.

use std::fmt::Write;

use serde::{Serialize, Serializer};

use crate::measure::Summary;
use crate::upstream::Upstream;

#[derive(Serialize)]
struct Report<'a> {
    runs: Runs<'a>,
}

struct Runs<'a>(&'a [Summary]);

impl Serialize for Runs<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|run| (run.stack.key(), run)))
    }
}

pub(crate) fn json(summaries: &[Summary]) -> serde_json::Result<String> {
    serde_json::to_string(&Report { runs: Runs(summaries) })
}

type Row = (&'static str, fn(&Summary) -> String);

const ROWS: [Row; 11] = [
    ("jobs finished", |run| format!("{} of {}", run.finished, run.offered)),
    ("given up", |run| run.failed.to_string()),
    ("finished at first attempt", |run| percent(run.finished_at_first_attempt as f64 / run.offered as f64)),
    ("retries", |run| run.retries.to_string()),
    ("upstream calls per finished job", |run| or_dash(run.upstream_calls_per_finished, |calls| format!("{calls:.2}"))),
    ("goodput, of capacity", |run| percent(run.goodput_fraction)),
    ("tokens made for nobody", |run| or_dash(run.wasted_fraction, percent)),
    ("interactive first token, p50", |run| format!("{:.0} ms", run.interactive_first_token_p50_ms)),
    ("interactive first token, p99", |run| format!("{:.0} ms", run.interactive_first_token_p99_ms)),
    ("bulk makespan", |run| format!("{:.2} s", run.bulk_makespan_s)),
    ("peak open streams upstream", |run| run.peak_open_streams.to_string()),
];

pub(crate) fn table(summaries: &[Summary], upstream: &Upstream) -> String {
    let mut text = format!(
        "\n{} slots, {:.0} ms for a typical call on an idle upstream, capacity {:.0} tokens/s\n\n{:32}",
        upstream.slots,
        upstream.service.as_secs_f64() * 1e3,
        upstream.capacity,
        ""
    );
    let columns = |text: &mut String, cell: &dyn Fn(&Summary) -> String| {
        for run in summaries {
            let _ = write!(text, "{:>18}", cell(run));
        }
        text.push('\n');
    };
    columns(&mut text, &|run| run.stack.title().to_owned());
    for (name, cell) in ROWS {
        let _ = write!(text, "{name:32}");
        columns(&mut text, &cell);
    }
    text
}

fn percent(fraction: f64) -> String {
    format!("{:.1} %", fraction * 100.0)
}

fn or_dash(value: Option<f64>, show: impl Fn(f64) -> String) -> String {
    value.map_or_else(|| "-".to_owned(), show)
}
