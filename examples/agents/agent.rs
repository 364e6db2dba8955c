//! What a run does: it asks its model, works with a tool, and asks again.

use std::time::Duration;

use tower::BoxError;
use tower_inflight::Run;

use crate::models::{Model, Models};

const TURNS: usize = 2;
const TOOL_WORK: Duration = Duration::from_millis(20);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lending {
    On,
    Off,
}

/// Carries the run out, or stops when somebody cancels it.
pub(crate) async fn carry_out(mut run: Run, model: Model, models: Models, lending: Lending) -> Result<(), BoxError> {
    run.admitted().await?;
    tokio::select! {
        done = work(&run, model, &models, lending) => done?,
        _ = run.ended() => return Ok(()),
    }
    Ok(run.finish()?)
}

async fn work(run: &Run, model: Model, models: &Models, lending: Lending) -> Result<(), BoxError> {
    for _ in 0..TURNS {
        let turn = models.ask(model, "What next?");
        match lending {
            Lending::On => run.turn(turn).await?,
            Lending::Off => run.beside(turn).await?,
        };
        run.beside(tokio::time::sleep(TOOL_WORK)).await;
    }
    Ok(())
}
