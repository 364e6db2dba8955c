//! Draws the runs side by side: a column for each, the same scales in all.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;
use std::time::Duration;

use plotters::prelude::*;

use crate::measure::Summary;
use crate::record::{Run, Sample};
use crate::support::plot::{
    self, Area, Axes, BLUE, Chart, Drawn, GREY, INK, ORANGE, Point, bars, below, canvas, centred, chart, fill,
};
use crate::upstream::Upstream;

const SIZE: (u32, u32) = (1200, 780);
const TITLE_HEIGHT: u32 = 48;
const COLUMN_TITLE_HEIGHT: u32 = 44;
const LEFT: u32 = 16;

const SERVED: RGBColor = BLUE;
const ABANDONED: RGBColor = ORANGE;
const GIVEN_UP: RGBColor = RGBColor(139, 26, 26);
/// In the order of `Priority::ALL`.
const CLASSES: [(&str, RGBColor); 3] =
    [("interactive", RGBColor(200, 60, 70)), ("default", RGBColor(240, 180, 70)), ("bulk", RGBColor(150, 170, 150))];

pub(crate) fn draw(path: &Path, runs: &[Run], summaries: &[Summary], upstream: &Upstream) -> Drawn {
    let root = canvas(path, SIZE)?;
    let (title, body) = root.split_vertically(TITLE_HEIGHT);
    title_text(&title, runs, upstream)?;
    let (_, body) = body.split_horizontally(LEFT);
    let scales = Scales::of(runs, upstream);
    let columns = body.split_evenly((1, runs.len()));
    for ((run, summary), (n, column)) in runs.iter().zip(summaries).zip(columns.iter().enumerate()) {
        // The last run has the room for the legends.
        let legend = n + 1 == runs.len();
        draw_run(column, run, summary, &scales, upstream, legend)?;
    }
    root.present()?;
    Ok(())
}

struct Scales {
    seconds: f64,
    open: f64,
    waiting: f64,
    failures: f64,
    /// Failures are counted over so many seconds.
    bin: f64,
}

impl Scales {
    fn of(runs: &[Run], upstream: &Upstream) -> Self {
        let samples = || runs.iter().flat_map(|run| &run.samples);
        let ends = runs.iter().flat_map(|run| &run.jobs).map(|job| job.ended_at.as_secs_f64());
        let open = samples().map(|sample| sample.open).max().unwrap_or_default();
        let waiting = samples().map(|sample| sample.waiting.iter().sum::<usize>()).max().unwrap_or_default();
        let bin = round_up(upstream.service.as_secs_f64());
        let failures = runs.iter().flat_map(|run| per_bin(&run.failed_attempts, bin)).map(|(_, count)| count);
        Self {
            seconds: ends.fold(1.0, f64::max),
            open: with_headroom(open.max(upstream.slots) as f64),
            waiting: with_headroom(waiting as f64),
            failures: with_headroom(failures.fold(1.0, f64::max)),
            bin,
        }
    }

    fn axes<'a>(&self, what: &'a str, highest: f64) -> Axes<'a> {
        Axes { x: ("time, s", self.seconds), y: (what, highest) }
    }
}

/// Leaves room for a note above the curves.
fn with_headroom(highest: f64) -> f64 {
    (highest * 1.15).max(1.0)
}

/// To a number that reads well: quarters below one, whole ones above.
fn round_up(seconds: f64) -> f64 {
    if seconds < 1.0 { (seconds * 4.0).ceil() / 4.0 } else { seconds.ceil() }
}

fn title_text(area: &Area<'_>, runs: &[Run], upstream: &Upstream) -> Drawn {
    let jobs = runs.first().map_or(0, |run| run.jobs.len());
    let text = format!(
        "The same {jobs} calls, three times: an upstream with {} slots behind different limits",
        upstream.slots
    );
    area.draw(&Text::new(text, (to_i32(SIZE.0 / 2), 30), centred(22, INK)))?;
    Ok(())
}

fn draw_run(
    column: &Area<'_>,
    run: &Run,
    summary: &Summary,
    scales: &Scales,
    upstream: &Upstream,
    legend: bool,
) -> Drawn {
    let (head, body) = column.split_vertically(COLUMN_TITLE_HEIGHT);
    let middle = to_i32(column.dim_in_pixel().0 / 2 + 20);
    head.draw(&Text::new(run.stack.title(), (middle, 12), centred(19, INK)))?;
    let result = format!(
        "{} of {} jobs finished, {:.0} % of capacity useful",
        summary.finished,
        summary.offered,
        summary.goodput_fraction * 100.0
    );
    head.draw(&Text::new(result, (middle, 32), centred(14, GREY)))?;
    let rows = body.split_evenly((3, 1));
    draw_open(&rows[0], run, scales, upstream, legend)?;
    draw_waiting(&rows[1], run, summary, scales, legend)?;
    draw_failures(&rows[2], run, scales, legend)
}

fn draw_open(area: &Area<'_>, run: &Run, scales: &Scales, upstream: &Upstream, legend: bool) -> Drawn {
    let mut chart = chart(area, scales.axes("open calls upstream", scales.open))?;
    // A real server does not say for whom it works.
    if !upstream.is_real() {
        fill(&mut chart, points(&run.samples, |sample| sample.open), ABANDONED, "client has left")?;
    }
    let wanted = points(&run.samples, |sample| sample.open.saturating_sub(sample.abandoned));
    fill(&mut chart, wanted, SERVED, "client waits or reads")?;
    let limit = [(0.0, upstream.slots as f64), (scales.seconds, upstream.slots as f64)];
    chart
        .draw_series(DashedLineSeries::new(limit, 4, 3, INK.stroke_width(1)))?
        .label(format!("{} slots", upstream.slots))
        .legend(|(x, y)| PathElement::new([(x, y), (x + 12, y)], INK));
    note(&chart, scales.seconds, scales.open, &format!("peak {}", run.stats.peak_open))?;
    show_legend(&mut chart, legend)
}

fn draw_waiting(area: &Area<'_>, run: &Run, summary: &Summary, scales: &Scales, legend: bool) -> Drawn {
    let mut chart = chart(area, scales.axes("callers waiting", scales.waiting))?;
    // Stacked: the sum of all classes first, each further area without the class above it.
    for upto in (0..CLASSES.len()).rev() {
        let (name, colour) = CLASSES[upto];
        let sum = points(&run.samples, |sample| sample.waiting[..=upto].iter().sum());
        fill(&mut chart, sum, colour, name)?;
    }
    let p99 = format!("operator's first token, p99: {:.0} ms", summary.interactive_first_token_p99_ms);
    note(&chart, scales.seconds, scales.waiting, &p99)?;
    show_legend(&mut chart, legend)
}

fn draw_failures(area: &Area<'_>, run: &Run, scales: &Scales, legend: bool) -> Drawn {
    let what = format!("failures per {} s", scales.bin);
    let mut chart = chart(area, scales.axes(&what, scales.failures))?;
    let given_up: Vec<_> = run.jobs.iter().filter(|job| job.answer.is_none()).map(|job| job.ended_at).collect();
    bars(&mut chart, per_bin(&run.failed_attempts, scales.bin), ABANDONED, "attempt timed out")?;
    bars(&mut chart, per_bin(&given_up, scales.bin), GIVEN_UP, "job given up")?;
    if run.failed_attempts.is_empty() {
        note(&chart, scales.seconds, scales.failures, "none")?;
    }
    show_legend(&mut chart, legend)
}

fn note(chart: &Chart<'_, '_>, seconds: f64, top: f64, text: &str) -> Drawn {
    chart.plotting_area().draw(&Text::new(text.to_owned(), (seconds * 0.03, top * 0.97), below(14, INK)))?;
    Ok(())
}

fn show_legend<'a, 'p: 'a>(chart: &mut Chart<'a, 'p>, legend: bool) -> Drawn {
    if legend { plot::legend(chart, SeriesLabelPosition::UpperRight) } else { Ok(()) }
}

fn points(samples: &[Sample], value: impl Fn(&Sample) -> usize) -> Vec<Point> {
    samples.iter().map(|sample| (sample.at.as_secs_f64(), value(sample) as f64)).collect()
}

/// The bins that are not empty, and how many moments fall into them.
fn per_bin(moments: &[Duration], bin: f64) -> impl Iterator<Item = (Range<f64>, f64)> {
    let mut bins = BTreeMap::<u128, u32>::new();
    let width = Duration::from_secs_f64(bin).as_millis();
    for moment in moments {
        *bins.entry(moment.as_millis() / width).or_default() += 1;
    }
    let over = move |n: u128| n as f64 * bin..(n + 1) as f64 * bin;
    bins.into_iter().map(move |(n, count)| (over(n), f64::from(count)))
}

fn to_i32(pixels: u32) -> i32 {
    i32::try_from(pixels).expect("a picture of sane size")
}
