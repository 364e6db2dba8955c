//! Draws the day, one row for each thing to see.

use std::collections::BTreeMap;
use std::path::Path;

use plotters::prelude::*;
use tower_inflight::BreakerState;

use crate::day::Day;
use crate::plan::Phase;
use crate::record::Sample;
use crate::scale::{to_minutes, to_tokens_per_second};
use crate::stack::QUOTA_PER_MINUTE;
use crate::support::plot::{
    self, Area, Axes, BLUE, Chart, Drawn, GREY, INK, ORANGE, Point, bars, below, canvas, centred, fill, legend, line,
};

const SIZE: (u32, u32) = (1100, 920);
const TITLE_HEIGHT: u32 = 44;
const OPEN: RGBColor = RGBColor(235, 180, 175);
const HALF_OPEN: RGBColor = RGBColor(250, 226, 170);
/// The classes in their order.
const CLASSES: [(&str, RGBColor); 3] =
    [("chat", RGBColor(200, 60, 70)), ("default", RGBColor(240, 180, 70)), ("bulk", RGBColor(150, 170, 150))];
const REASONS: [(&str, &str, RGBColor); 4] = [
    ("deadline", "deadline", RGBColor(150, 170, 150)),
    ("queue_full", "queue full", RGBColor(240, 180, 70)),
    ("breaker_open", "breaker open", RGBColor(200, 60, 70)),
    ("retry_budget", "retry budget", RGBColor(110, 80, 150)),
];

/// Rates are taken over so many samples.
const RATE_OVER: usize = 15;
/// Room for the legends, in minutes.
const MARGIN: f64 = 1.3;

pub(crate) fn draw(path: &Path, day: &Day) -> Drawn {
    let root = canvas(path, SIZE)?;
    let (head, body) = root.split_vertically(TITLE_HEIGHT);
    let title = "A slow Tuesday: first token from 0.7 s to 4 s, then 30 % of streams stall, then all is well";
    head.draw(&Text::new(title, (550, 24), centred(20, INK)))?;
    let rows = body.split_evenly((4, 1));
    let samples = &day.samples;
    draw_limit(&rows[0], samples)?;
    draw_queue(&rows[1], samples)?;
    draw_tokens(&rows[2], samples)?;
    draw_refusals(&rows[3], samples)?;
    root.present()?;
    Ok(())
}

fn draw_limit(area: &Area<'_>, samples: &[Sample]) -> Drawn {
    let limit = points(samples, |sample| f64::from(sample.limit));
    let top = highest(&limit) * 1.3;
    let mut chart = chart(area, samples, "calls in flight", top)?;
    let state = |wanted: BreakerState| points(samples, move |sample| if sample.breaker == wanted { top } else { 0.0 });
    fill(&mut chart, steps(state(BreakerState::Open)), OPEN, "breaker open")?;
    fill(&mut chart, steps(state(BreakerState::HalfOpen)), HALF_OPEN, "half-open")?;
    fill(&mut chart, points(samples, |sample| f64::from(sample.in_flight)), BLUE, "in flight")?;
    line(&mut chart, steps(limit), INK, "limit")?;
    phases(&mut chart, top)?;
    legend(&mut chart, SeriesLabelPosition::UpperRight)
}

fn draw_queue(area: &Area<'_>, samples: &[Sample]) -> Drawn {
    let upto = |n: usize| {
        points(samples, move |sample| {
            let queued = [sample.queued.interactive, sample.queued.default, sample.queued.bulk];
            f64::from(queued[..=n].iter().sum::<u32>())
        })
    };
    let top = highest(&upto(2)) * 1.2;
    let mut chart = chart(area, samples, "queued", top)?;
    // Stacked: the sum of all classes first, each further area without the class above it.
    for (n, (name, colour)) in CLASSES.into_iter().enumerate().rev() {
        fill(&mut chart, upto(n), colour, name)?;
    }
    phases(&mut chart, top)?;
    legend(&mut chart, SeriesLabelPosition::UpperRight)
}

fn draw_tokens(area: &Area<'_>, samples: &[Sample]) -> Drawn {
    let rate = |count: fn(&Sample) -> u64| -> Vec<Point> {
        let over = |pair: &[Sample]| {
            let (begin, end) = (&pair[0], &pair[RATE_OVER]);
            (to_minutes(end.at), to_tokens_per_second(count(end) - count(begin), end.at - begin.at) / 1e3)
        };
        samples.windows(RATE_OVER + 1).map(over).collect()
    };
    let admitted = rate(|sample| sample.sent.tokens());
    let quota = QUOTA_PER_MINUTE as f64 / 60e3;
    let top = highest(&admitted).max(quota) * 1.25;
    let mut chart = chart(area, samples, "1,000 tokens/s", top)?;
    line(&mut chart, admitted, BLUE, "admitted, before refunds")?;
    line(&mut chart, rate(|sample| sample.used_tokens), ORANGE, "used")?;
    line(&mut chart, vec![(0.0, quota), (end_of(samples), quota)], GREY, "quota")?;
    phases(&mut chart, top)?;
    legend(&mut chart, SeriesLabelPosition::UpperRight)
}

fn draw_refusals(area: &Area<'_>, samples: &[Sample]) -> Drawn {
    let bins: Vec<_> = REASONS.iter().map(|(reason, ..)| per_bin(samples, reason)).collect();
    let stacked = |upto: usize, bin: u32| -> f64 { bins[..=upto].iter().filter_map(|of| of.get(&bin)).sum() };
    let last = bins.iter().filter_map(|of| of.last_key_value()).map(|(&bin, _)| bin).max().unwrap_or_default();
    let top = (0..=last).map(|bin| stacked(REASONS.len() - 1, bin)).fold(1.0, f64::max) * 1.2;
    let mut chart = chart(area, samples, "refused", top)?;
    for (n, (_, name, colour)) in REASONS.into_iter().enumerate().rev() {
        let over = |bin: u32| f64::from(bin) / BINS_PER_MINUTE..f64::from(bin + 1) / BINS_PER_MINUTE;
        bars(&mut chart, (0..=last).map(|bin| (over(bin), stacked(n, bin))), colour, name)?;
    }
    phases(&mut chart, top)?;
    legend(&mut chart, SeriesLabelPosition::UpperRight)
}

const BINS_PER_MINUTE: f64 = 6.0;

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a few minutes")]
fn per_bin(samples: &[Sample], reason: &str) -> BTreeMap<u32, f64> {
    let count = |sample: &Sample| sample.refused.get(reason).copied().unwrap_or_default();
    let mut bins = BTreeMap::new();
    for pair in samples.windows(2) {
        let bin = (to_minutes(pair[1].at) * BINS_PER_MINUTE) as u32;
        *bins.entry(bin).or_default() += (count(&pair[1]) - count(&pair[0])) as f64;
    }
    bins
}

fn chart<'a, 'p>(area: &'a Area<'p>, samples: &[Sample], what: &str, highest: f64) -> Drawn<Chart<'a, 'p>> {
    plot::chart(area, Axes { x: ("time, minutes of the day", end_of(samples) + MARGIN), y: (what, highest) })
}

/// Where each phase begins.
fn phases(chart: &mut Chart<'_, '_>, top: f64) -> Drawn {
    let style = below(13, GREY);
    for (phase, from) in Phase::ALL {
        chart.draw_series(DashedLineSeries::new([(from, 0.0), (from, top)], 4, 3, GREY.stroke_width(1)))?;
        chart.plotting_area().draw(&Text::new(phase.title(), (from + 0.06, top * 0.98), style.clone()))?;
    }
    Ok(())
}

fn points(samples: &[Sample], value: impl Fn(&Sample) -> f64) -> Vec<Point> {
    samples.iter().map(|sample| (to_minutes(sample.at), value(sample))).collect()
}

/// As it is: what changes, changes at once.
fn steps(points: Vec<Point>) -> Vec<Point> {
    let until_next = points.windows(2).flat_map(|pair| [pair[0], (pair[1].0, pair[0].1)]);
    until_next.chain(points.last().copied()).collect()
}

fn highest(points: &[Point]) -> f64 {
    points.iter().map(|&(_, y)| y).fold(1.0, f64::max)
}

fn end_of(samples: &[Sample]) -> f64 {
    samples.last().map_or(1.0, |sample| to_minutes(sample.at))
}
