//! For [`metrics_exporter_prometheus`].

use metrics_exporter_prometheus::{BuildError, Matcher, PrometheusBuilder};

use crate::meters::{DESCRIPTIONS, FIRST_BYTE_BUCKETS, POOL_DESCRIPTIONS, WAIT_BUCKETS};
use crate::runs::RUN_DESCRIPTIONS;

/// Sets the buckets of this crate's histograms, so that they are exported as histograms and not as summaries.
///
/// `prefix` is the limiter's, `"llm"` by default.
///
/// ```
/// use metrics_exporter_prometheus::PrometheusBuilder;
///
/// let builder = tower_inflight::prometheus::buckets(PrometheusBuilder::new(), "llm")?;
/// let recorder = builder.build_recorder();
/// # Ok::<(), metrics_exporter_prometheus::BuildError>(())
/// ```
///
/// # Errors
/// Those of the builder, for buckets that are empty: ours are not.
pub fn buckets(builder: PrometheusBuilder, prefix: &str) -> Result<PrometheusBuilder, BuildError> {
    let named = |what: &str| Matcher::Full(format!("{prefix}_{what}"));
    builder
        .set_buckets_for_metric(named("queue_wait_seconds"), &WAIT_BUCKETS)?
        .set_buckets_for_metric(named("hold_seconds"), &WAIT_BUCKETS)?
        .set_buckets_for_metric(named("run_wait_seconds"), &WAIT_BUCKETS)?
        .set_buckets_for_metric(named("run_lent_seconds"), &WAIT_BUCKETS)?
        .set_buckets_for_metric(named("first_byte_seconds"), &FIRST_BYTE_BUCKETS)
}

/// Tells the installed recorder what this crate's metrics mean. Call it once the recorder is installed.
///
/// ```
/// tower_inflight::prometheus::describe("llm");
/// ```
pub fn describe(prefix: &str) {
    for (what, unit, text) in DESCRIPTIONS.into_iter().chain(POOL_DESCRIPTIONS).chain(RUN_DESCRIPTIONS) {
        let name = format!("{prefix}_{what}");
        if what.ends_with("_total") {
            metrics::describe_counter!(name, unit, text);
        } else if what.ends_with("_seconds") {
            metrics::describe_histogram!(name, unit, text);
        } else {
            metrics::describe_gauge!(name, unit, text);
        }
    }
}
