//! A picture per scenario: our limit and what is in flight over the capacity, and the goodput of all.

use std::path::{Path, PathBuf};

use plotters::coord::Shift;
use plotters::prelude::*;
use tower_inflight::simulator::{Run, Scenario, Step};

use crate::contestants::{ORACLE, OURS};
use crate::measure::Row;

type Failure = Box<dyn std::error::Error>;
type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

const SIZE: (u32, u32) = (960, 640);
const TOP_PART: u32 = 340;
const TEXT: (&str, u32) = ("sans-serif", 13);
const TITLE: (&str, u32) = ("sans-serif", 17);
/// Steps that a line of goodput is smoothed over.
const SMOOTHED: usize = 6;

const OURS_COLOUR: RGBColor = RGBColor(0xd6, 0x27, 0x28);
const ORACLE_COLOUR: RGBColor = RGBColor(0x33, 0x33, 0x33);
const FLIGHT_COLOUR: RGBColor = RGBColor(0xf5, 0xb0, 0xa0);
const QUEUE_COLOUR: RGBColor = RGBColor(0x8c, 0xa8, 0xd8);
const OTHERS: [RGBColor; 11] = [
    RGBColor(0xe3, 0x77, 0xc2),
    RGBColor(0xf7, 0xb6, 0xd2),
    RGBColor(0x8c, 0x56, 0x4b),
    RGBColor(0xd9, 0xd9, 0xd9),
    RGBColor(0xb0, 0xb0, 0xb0),
    RGBColor(0x88, 0x88, 0x88),
    RGBColor(0x1f, 0x77, 0xb4),
    RGBColor(0x2c, 0xa0, 0x2c),
    RGBColor(0x94, 0x67, 0xbd),
    RGBColor(0xff, 0x7f, 0x0e),
    RGBColor(0x17, 0xbe, 0xcf),
];
/// Part of the width that is left free for the legend.
const LEGEND: f64 = 0.22;

/// Draws into `folder` and returns the file.
pub(crate) fn draw(folder: &Path, name: &str, scenario: &Scenario, rows: &[Row]) -> Result<PathBuf, Failure> {
    let path = folder.join(format!("{name}.svg"));
    {
        let root = SVGBackend::new(&path, SIZE).into_drawing_area();
        root.fill(&WHITE)?;
        let root = root.titled(&format!("{name}: {}", scenario.about), TITLE)?;
        let (top, bottom) = root.split_vertically(TOP_PART);
        draw_limits(&top, scenario, rows)?;
        draw_goodput(&bottom, scenario, rows)?;
        root.present()?;
    }
    Ok(path)
}

fn draw_limits(area: &Area<'_>, scenario: &Scenario, rows: &[Row]) -> Result<(), Failure> {
    let find = |name: &str| rows.iter().find(|row| row.controller == name).map(|row| &row.sample);
    let shown = find(OURS).or_else(|| rows.first().map(|row| &row.sample)).ok_or("nothing to draw")?;
    let limits = sum(shown, |step| step.limit);
    let in_flight = sum(shown, |step| step.in_flight);
    let waiting = sum(shown, |step| step.waiting);
    let oracle = find(ORACLE).map(|run| sum(run, |step| step.limit));
    let highest = limits.iter().chain(&in_flight).chain(oracle.iter().flatten()).copied().fold(1.0, f64::max) * 1.15;
    let mut chart = ChartBuilder::on(area)
        .margin(8)
        .x_label_area_size(24)
        .y_label_area_size(64)
        .build_cartesian_2d(0.0..scenario.runs_s * (1.0 + LEGEND), 0.0..highest)?;
    chart
        .configure_mesh()
        .light_line_style(WHITE)
        .label_style(TEXT)
        .x_label_formatter(&whole)
        .y_label_formatter(&whole)
        .y_desc("calls")
        .draw()?;
    let line = |values: &[f64]| points(values, shown.step_s());
    let queued = line(&waiting).into_iter().map(|(at, waiting)| (at, waiting.min(highest)));
    chart.draw_series(LineSeries::new(queued, QUEUE_COLOUR))?.label("waiting for a slot").legend(key(QUEUE_COLOUR));
    chart
        .draw_series(AreaSeries::new(line(&in_flight), 0.0, FLIGHT_COLOUR.mix(0.5)))?
        .label("in flight")
        .legend(key(FLIGHT_COLOUR));
    chart
        .draw_series(LineSeries::new(line(&limits), OURS_COLOUR.stroke_width(2)))?
        .label("our limit")
        .legend(key(OURS_COLOUR));
    if let Some(oracle) = oracle {
        chart.draw_series(LineSeries::new(line(&oracle), ORACLE_COLOUR))?.label("capacity").legend(key(ORACLE_COLOUR));
    }
    legend(&mut chart)
}

fn draw_goodput(area: &Area<'_>, scenario: &Scenario, rows: &[Row]) -> Result<(), Failure> {
    let highest = rows.iter().flat_map(|row| smoothed(&row.sample)).fold(1.0, f64::max) * 1.1;
    let mut chart = ChartBuilder::on(area)
        .margin(8)
        .x_label_area_size(36)
        .y_label_area_size(64)
        .build_cartesian_2d(0.0..scenario.runs_s * (1.0 + LEGEND), 0.0..highest)?;
    chart
        .configure_mesh()
        .light_line_style(WHITE)
        .label_style(TEXT)
        .x_label_formatter(&whole)
        .y_label_formatter(&whole)
        .x_desc("seconds")
        .y_desc("goodput, tokens/s")
        .draw()?;
    let mut colours = OTHERS.iter().cycle();
    for row in rows {
        let style = match row.controller {
            OURS => OURS_COLOUR.stroke_width(2),
            ORACLE => ORACLE_COLOUR.stroke_width(1),
            _ => ShapeStyle::from(*colours.next().ok_or("colours come again and again")?),
        };
        let line = points(&smoothed(&row.sample), row.sample.step_s());
        chart.draw_series(LineSeries::new(line, style))?.label(row.controller).legend(key(style));
    }
    legend(&mut chart)
}

fn legend<'a, X, Y>(chart: &mut ChartContext<'a, SVGBackend<'a>, Cartesian2d<X, Y>>) -> Result<(), Failure>
where
    X: Ranged<ValueType = f64>,
    Y: Ranged<ValueType = f64>,
{
    let labels = &mut chart.configure_series_labels();
    labels.position(SeriesLabelPosition::UpperRight).background_style(WHITE.mix(0.8)).label_font(TEXT).draw()?;
    Ok(())
}

fn whole(value: &f64) -> String {
    format!("{value:.0}")
}

fn key(style: impl Into<ShapeStyle>) -> impl Fn((i32, i32)) -> PathElement<(i32, i32)> {
    let style = style.into().stroke_width(3);
    move |(x, y)| PathElement::new([(x, y), (x + 16, y)], style)
}

fn sum(run: &Run, figure: impl Fn(&Step) -> u32) -> Vec<f64> {
    let count = run.steps().first().map_or(0, Vec::len);
    (0..count).map(|at| run.steps().iter().map(|client| f64::from(figure(&client[at]))).sum()).collect()
}

fn smoothed(run: &Run) -> Vec<f64> {
    run.goodput_by_step().windows(SMOOTHED).map(|some| some.iter().sum::<f64>() / some.len() as f64).collect()
}

fn points(values: &[f64], step_s: f64) -> Vec<(f64, f64)> {
    values.iter().enumerate().map(|(at, &value)| ((at + 1) as f64 * step_s, value)).collect()
}
