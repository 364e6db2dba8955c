//! Draws a sweep: what each limit is good for, and which one an adaptive limit ends at.

use std::path::Path;

use plotters::prelude::*;

use crate::args::Start;
use crate::record::Figures;
use crate::support::plot::{
    Area, Axes, BLUE, Chart, Drawn, INK, ORANGE, Point, canvas, centred, chart, legend, swatch,
};

const SIZE: (u32, u32) = (900, 720);
const TITLE_HEIGHT: u32 = 40;
/// Of adaptive runs, one after the other.
const RINGS: [RGBColor; 4] = [ORANGE, RGBColor(90, 140, 70), RGBColor(110, 80, 150), RGBColor(200, 60, 70)];

pub(crate) fn draw(path: &Path, rows: &[(Start, Figures)]) -> Drawn {
    let root = canvas(path, SIZE)?;
    let (head, body) = root.split_vertically(TITLE_HEIGHT);
    let title = "What a limit is good for, and where adaptive limits end";
    head.draw(&Text::new(title, (i32::try_from(SIZE.0 / 2)?, 22), centred(20, INK)))?;
    let halves = body.split_evenly((2, 1));
    let mut throughput = draw_rows(&halves[0], rows, "tokens/s", |row| row.tokens_per_s)?;
    // What a high limit leaves free: it has the most throughput.
    legend(&mut throughput, SeriesLabelPosition::LowerRight)?;
    draw_rows(&halves[1], rows, "time to first token, median, s", |row| row.first_token_p50_s)?;
    root.present()?;
    Ok(())
}

fn draw_rows<'a, 'p>(
    area: &'a Area<'p>,
    rows: &[(Start, Figures)],
    what: &str,
    value: impl Fn(&Figures) -> f64,
) -> Drawn<Chart<'a, 'p>> {
    let point = |row: &Figures| (f64::from(row.limit), value(row));
    let highest = |of: fn(Point) -> f64| rows.iter().map(|(_, row)| of(point(row))).fold(0.0, f64::max) * 1.15;
    let axes = Axes { x: ("limit, calls in flight", highest(|(x, _)| x)), y: (what, highest(|(_, y)| y)) };
    let mut chart = chart(area, axes)?;

    let is_fixed = |(start, row): &(Start, Figures)| matches!(start, Start::Fixed(_)).then(|| point(row));
    let mut fixed: Vec<Point> = rows.iter().filter_map(is_fixed).collect();
    fixed.sort_by(|a, b| a.0.total_cmp(&b.0));
    let dots = LineSeries::new(fixed, BLUE.filled().stroke_width(2)).point_size(4);
    chart.draw_series(dots)?.label("fixed").legend(|at| swatch(at, BLUE));

    let adaptive = rows.iter().filter_map(|(start, row)| match start {
        Start::Fixed(_) => None,
        Start::Adaptive(initial) => Some((initial, row)),
    });
    for ((initial, row), (n, colour)) in adaptive.zip((0..).zip(RINGS.into_iter().cycle())) {
        let style = colour.stroke_width(3);
        // Around the one before, should both end at the same limit.
        chart
            .draw_series([Circle::new(point(row), 6 + 4 * n, style)])?
            .label(format!("adaptive, from {initial}: {} in the end", row.limit))
            .legend(move |(x, y)| Circle::new((x + 6, y), 5, style));
    }
    Ok(chart)
}
