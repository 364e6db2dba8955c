//! What the pictures of the examples have in common: one hand for axes, areas, lines and legends.

use std::error::Error;
use std::ops::Range;
use std::path::Path;

use plotters::coord::Shift;
use plotters::coord::types::RangedCoordf64;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

pub(crate) type Drawn<T = ()> = Result<T, Box<dyn Error + Send + Sync>>;
pub(crate) type Area<'p> = DrawingArea<SVGBackend<'p>, Shift>;
pub(crate) type Chart<'a, 'p> = ChartContext<'a, SVGBackend<'p>, Cartesian2d<RangedCoordf64, RangedCoordf64>>;
pub(crate) type Point = (f64, f64);

pub(crate) const INK: RGBColor = RGBColor(40, 44, 52);
pub(crate) const GREY: RGBColor = RGBColor(110, 116, 125);
pub(crate) const BLUE: RGBColor = RGBColor(106, 153, 200);
pub(crate) const ORANGE: RGBColor = RGBColor(214, 122, 60);

const FONT: &str = "sans-serif";
/// Labels of the x axis do not come closer than this.
const LABEL_WIDTH: u32 = 75;

/// What is drawn over what. Both begin at 0.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Axes<'a> {
    pub(crate) x: (&'a str, f64),
    pub(crate) y: (&'a str, f64),
}

/// An empty picture, and the folder that it will lie in.
pub(crate) fn canvas(path: &Path, size: (u32, u32)) -> Drawn<Area<'_>> {
    if let Some(directory) = path.parent() {
        std::fs::create_dir_all(directory)?;
    }
    let root = SVGBackend::new(path, size).into_drawing_area();
    root.fill(&WHITE)?;
    Ok(root)
}

/// Text around the point that it is drawn at.
pub(crate) fn centred(size: u32, colour: RGBColor) -> TextStyle<'static> {
    text(size, colour, HPos::Center, VPos::Center)
}

/// Text whose corner at the top left is the point that it is drawn at.
pub(crate) fn below(size: u32, colour: RGBColor) -> TextStyle<'static> {
    text(size, colour, HPos::Left, VPos::Top)
}

fn text(size: u32, colour: RGBColor, h: HPos, v: VPos) -> TextStyle<'static> {
    (FONT, size).into_font().color(&colour).pos(Pos::new(h, v))
}

pub(crate) fn chart<'a, 'p>(area: &'a Area<'p>, axes: Axes<'_>) -> Drawn<Chart<'a, 'p>> {
    let Axes { x: (x_title, x_end), y: (y_title, y_end) } = axes;
    // As many as tell five labels apart.
    let decimals = if y_end > 5.0 { 0 } else { 1 + usize::from(y_end < 0.5) };
    let mut chart = ChartBuilder::on(area)
        .margin(6)
        .x_label_area_size(34)
        .y_label_area_size(50)
        .build_cartesian_2d(0.0..x_end, 0.0..y_end)?;
    chart
        .configure_mesh()
        .disable_x_mesh()
        .bold_line_style(GREY.mix(0.25))
        .light_line_style(TRANSPARENT)
        .axis_style(GREY)
        .x_labels(usize::try_from(area.dim_in_pixel().0 / LABEL_WIDTH)?)
        .y_labels(5)
        .x_label_formatter(&|x| format!("{x:.0}"))
        .y_label_formatter(&|y| format!("{y:.decimals$}"))
        .label_style((FONT, 12, &INK))
        .axis_desc_style((FONT, 13, &INK))
        .x_desc(x_title)
        .y_desc(y_title)
        .draw()?;
    Ok(chart)
}

pub(crate) fn fill(chart: &mut Chart<'_, '_>, points: Vec<Point>, colour: RGBColor, name: &str) -> Drawn {
    chart.draw_series(AreaSeries::new(points, 0.0, colour))?.label(name).legend(move |at| swatch(at, colour));
    Ok(())
}

pub(crate) fn line(chart: &mut Chart<'_, '_>, points: Vec<Point>, colour: RGBColor, name: &str) -> Drawn {
    chart
        .draw_series(LineSeries::new(points, colour.stroke_width(2)))?
        .label(name)
        .legend(move |at| swatch(at, colour));
    Ok(())
}

/// A bar for each range of x, from 0 to a height.
pub(crate) fn bars(
    chart: &mut Chart<'_, '_>,
    bars: impl IntoIterator<Item = (Range<f64>, f64)>,
    colour: RGBColor,
    name: &str,
) -> Drawn {
    let bars =
        bars.into_iter().map(|(over, height)| Rectangle::new([(over.start, 0.0), (over.end, height)], colour.filled()));
    chart.draw_series(bars)?.label(name).legend(move |at| swatch(at, colour));
    Ok(())
}

pub(crate) fn legend<'a, 'p: 'a>(chart: &mut Chart<'a, 'p>, position: SeriesLabelPosition) -> Drawn {
    chart
        .configure_series_labels()
        .position(position)
        .label_font((FONT, 13, &INK))
        .background_style(WHITE.mix(0.8))
        .legend_area_size(18)
        .draw()?;
    Ok(())
}

/// What stands for a colour in a legend.
pub(crate) fn swatch((x, y): (i32, i32), colour: RGBColor) -> Rectangle<(i32, i32)> {
    Rectangle::new([(x, y - 5), (x + 12, y + 5)], colour.filled())
}
