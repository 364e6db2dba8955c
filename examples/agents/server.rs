//! The HTTP side: `POST /runs` answers at once with the run's number and goes on with its events.

use std::convert::Infallible;
use std::net::SocketAddr;

use axum::extract::{Path, State};
use axum::http::{StatusCode, header};
use axum::response::sse::{Event, Sse};
use axum::response::{Html, IntoResponse, Response};
use axum::routing::{delete, get, post};
use axum::{Json, Router};
use futures_util::{Stream, StreamExt, stream};
use serde::{Deserialize, Serialize};
use serde_json::json;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tower::BoxError;
use tower_inflight::{
    Routing, RunHandle, RunId, RunQueue, RunStatsService, RunStatus, SnapshotService, StartError, StartRun, UnknownRun,
};

use crate::agent::{Lending, carry_out};
use crate::models::{Model, Models};
use crate::support::Gateway;

pub(crate) struct Server {
    address: SocketAddr,
    serving: JoinHandle<()>,
    _gateways: [Gateway; 2],
}

#[derive(Clone)]
struct App {
    queue: RunQueue,
    models: Models,
    lending: Lending,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct NewRun {
    pub(crate) tenant: String,
    pub(crate) user: String,
    pub(crate) model: Model,
}

#[derive(Serialize)]
struct Started {
    id: RunId,
    status: RunStatus,
    position: Option<u32>,
}

impl Server {
    pub(crate) async fn start(lending: Lending, routing: Routing) -> Result<Self, BoxError> {
        let (models, gateways) = Models::start(routing).await?;
        let queue =
            RunQueue::builder().max_concurrent_runs(8).max_queue_depth(100).max_queued_runs_per_user(50).build()?;
        let routes = routes(App { queue, models, lending });
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let serving = tokio::spawn(async move {
            let _ = axum::serve(listener, routes).await;
        });
        Ok(Self { address, serving, _gateways: gateways })
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    pub(crate) async fn stop(self) {
        self.serving.abort();
        let _ = self.serving.await;
    }
}

fn routes(app: App) -> Router {
    Router::new()
        .route("/", get(|| async { Html(include_str!("page.html")) }))
        .route("/runs", post(start))
        .route("/runs/{id}", delete(cancel))
        .route("/runs/{id}/events", get(events))
        .route("/events", get(all_events))
        .route_service("/concurrency/stats", RunStatsService::new(app.queue.clone()))
        .route_service("/lanes", SnapshotService::new(app.models.limiter.clone()))
        .with_state(app)
}

async fn start(State(app): State<App>, Json(new): Json<NewRun>) -> Result<Response, Failed> {
    let run = app.queue.start(StartRun::new(new.tenant, new.user))?;
    let started = Started { id: run.id(), status: run.status(), position: run.position() };
    let (first, events) = (sse("started", &started), told(run.handle()));
    let location = format!("/runs/{}", run.id());
    tokio::spawn(carry_out(run, new.model, app.models, app.lending));
    let stream = stream::iter([Ok(first)]).chain(events);
    Ok((StatusCode::ACCEPTED, [(header::LOCATION, location)], Sse::new(stream)).into_response())
}

async fn cancel(State(app): State<App>, Path(id): Path<RunId>) -> Result<StatusCode, Failed> {
    app.queue.cancel(id)?;
    Ok(StatusCode::NO_CONTENT)
}

async fn events(State(app): State<App>, Path(id): Path<RunId>) -> Result<Response, Failed> {
    Ok(Sse::new(told(&app.queue.run(id)?)).into_response())
}

async fn all_events(State(app): State<App>) -> Response {
    Sse::new(app.queue.subscribe().map(|notice| Ok::<_, Infallible>(sse("run", &notice)))).into_response()
}

fn told(run: &RunHandle) -> impl Stream<Item = Result<Event, Infallible>> + use<> {
    run.events().map(|event| Ok(sse("run", &event)))
}

fn sse(name: &str, data: &impl Serialize) -> Event {
    Event::default().event(name).json_data(data).expect("it serialises")
}

enum Failed {
    Start(StartError),
    Unknown(UnknownRun),
}

impl From<StartError> for Failed {
    fn from(error: StartError) -> Self {
        Self::Start(error)
    }
}

impl From<UnknownRun> for Failed {
    fn from(error: UnknownRun) -> Self {
        Self::Unknown(error)
    }
}

impl IntoResponse for Failed {
    fn into_response(self) -> Response {
        let (status, why) = match self {
            Self::Start(StartError::Budget(error)) => (StatusCode::PAYMENT_REQUIRED, error.to_string()),
            Self::Start(error) => (StatusCode::SERVICE_UNAVAILABLE, error.to_string()),
            Self::Unknown(error) => (StatusCode::NOT_FOUND, error.to_string()),
        };
        (status, Json(json!({"error": why}))).into_response()
    }
}
