//! The table, and the same as data.

use serde_json::{Map, Value, json};

use crate::measure::{Figures, Row};

pub(crate) fn print(name: &str, about: &str, rows: &[Row]) {
    println!("\n{name}: {about}");
    println!(
        "  {:<18} {:>8} {:>14} {:>8} {:>10} {:>8} {:>9}",
        "", "goodput", "first token", "wasted", "converged", "failed", "fairness"
    );
    println!(
        "  {:<18} {:>8} {:>14} {:>8} {:>10} {:>8} {:>9}",
        "", "/ oracle", "p99 s, inter.", "calls", "s", "calls", ""
    );
    for Row { controller, figures, .. } in rows {
        let Figures { goodput, interactive_ttft_p99_s, wasted_calls, converged_s, fairness, failed_calls } = figures;
        let converged = converged_s.map_or_else(|| "never".to_owned(), |seconds| format!("{seconds:.0}"));
        println!(
            "  {controller:<18} {goodput:>8.3} {interactive_ttft_p99_s:>14.2} {wasted_calls:>8.0} {converged:>10} \
             {failed_calls:>8.0} {fairness:>9.3}"
        );
    }
}

/// `{"scenarios":{"step_down":{"ours":{"goodput":…,"interactive_ttft_p99_s":…,"wasted_calls":…,"converged_s":…},…},…}}`
pub(crate) fn to_json(results: &[(String, Vec<Row>)]) -> Value {
    let scenarios: Map<String, Value> =
        results.iter().map(|(name, rows)| (name.clone(), by_controller(rows))).collect();
    json!({ "scenarios": scenarios })
}

fn by_controller(rows: &[Row]) -> Value {
    rows.iter().map(|row| (row.controller.to_owned(), figures(&row.figures))).collect::<Map<_, _>>().into()
}

fn figures(figures: &Figures) -> Value {
    json!({
        "goodput": rounded(figures.goodput),
        "interactive_ttft_p99_s": rounded(figures.interactive_ttft_p99_s),
        "wasted_calls": rounded(figures.wasted_calls),
        "converged_s": figures.converged_s.map(rounded),
    })
}

fn rounded(figure: f64) -> f64 {
    (figure * 1e4).round() / 1e4
}
