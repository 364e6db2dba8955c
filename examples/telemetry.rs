//! Shows the lanes to whoever asks: the snapshot as JSON, at a route of your own server.
//!
//! The snapshot comes from memory and is cheap, so a dashboard may ask every second.

#[path = "support/mod.rs"]
mod support;

use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::client::legacy::{Client, connect::HttpConnector};
use hyper_util::rt::{TokioExecutor, TokioIo};
use support::{Answer, ChatRequest, Gateway, GatewayConfig};
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tower::{BoxError, ServiceBuilder, ServiceExt};
use tower_inflight::{Call, InflightLimitLayer, Limiter, Priority, SnapshotService};

const ROUTE: &str = "/api/telemetry/llm-lanes";

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    let gateway = Gateway::start(GatewayConfig { slots: 2, ..Default::default() }).await;
    let limiter = Limiter::builder().max_inflight(2).build()?;

    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    let server = tokio::spawn(serve(listener, SnapshotService::new(limiter.clone())));

    let http = Client::builder(TokioExecutor::new()).build_http::<Full<Bytes>>();
    let client = ServiceBuilder::new().layer(InflightLimitLayer::new(limiter)).service(http.clone());
    let mut calls = JoinSet::new();
    for priority in [Priority::Bulk, Priority::Bulk, Priority::Bulk, Priority::Default, Priority::Interactive] {
        let mut request = ChatRequest { model: "acme/smart", prompt: "Hello", max_tokens: 60 }.to(gateway.url());
        request.extensions_mut().insert(Call::new(priority));
        let client = client.clone();
        calls.spawn(async move { Answer::new(client.oneshot(request).await?.into_body()).text().await });
    }

    tokio::time::sleep(Duration::from_millis(100)).await;
    println!("GET {ROUTE}, with five calls on two slots:\n{}", get(&http, &format!("http://{address}{ROUTE}")).await?);
    while let Some(answer) = calls.join_next().await {
        answer??;
    }
    println!("and when they are done:\n{}", get(&http, &format!("http://{address}{ROUTE}")).await?);
    server.abort();
    Ok(())
}

/// Any HTTP server will do; this one has a single route.
async fn serve(listener: TcpListener, lanes: SnapshotService) {
    while let Ok((stream, _)) = listener.accept().await {
        let lanes = lanes.clone();
        let routes = service_fn(move |request: Request<Incoming>| {
            let lanes = lanes.clone();
            async move {
                match request.uri().path() {
                    ROUTE => lanes.oneshot(request).await,
                    _ => Ok(not_found()),
                }
            }
        });
        tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), routes));
    }
}

fn not_found() -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::default());
    *response.status_mut() = StatusCode::NOT_FOUND;
    response
}

async fn get(http: &Client<HttpConnector, Full<Bytes>>, url: &str) -> Result<String, BoxError> {
    let body = http.get(url.parse()?).await?.into_body().collect().await?.to_bytes();
    let snapshot: serde_json::Value = serde_json::from_slice(&body)?;
    Ok(serde_json::to_string_pretty(&snapshot)?)
}
