//! Whose call it is, through a reqwest-middleware chain.

use std::time::Duration;

use http::Extensions;
use reqwest::Response;
use tower_inflight::{Admitted, Call, InCurrentScope, InflightLimitLayer, LaneKey, Model, Priority, Scope};

use super::reply::Reply;
use super::reqwest_support::{chain, chat, plain};
use super::server::Server;
use super::support::limiter;

fn class(response: &Response) -> Priority {
    response.extensions().get::<Admitted>().expect("admitted").priority()
}

#[tokio::test]
async fn a_call_in_the_extensions_is_heard_and_dropped_by_execute() {
    let server = Server::answering(Reply::ok()).await;
    let client = chain(plain(), limiter(2));
    let request = || chat(&client, &server).with_extension(Call::new(Priority::Interactive));

    let sent = request().send().await.expect("an answer");
    assert_eq!(class(&sent), Priority::Interactive);

    // reqwest-middleware starts with an empty map here.
    let executed = client.execute(request().build().expect("a request")).await.expect("an answer");
    assert_eq!(class(&executed), Priority::Default);

    let mut extensions = Extensions::new();
    extensions.insert(Call::new(Priority::Bulk));
    let request = request().build().expect("a request");
    let executed = client.execute_with_extensions(request, &mut extensions).await.expect("an answer");
    assert_eq!(class(&executed), Priority::Bulk);
}

#[tokio::test]
async fn a_scope_reaches_execute_and_spawned_tasks() {
    let server = Server::answering(Reply::ok()).await;
    let client = chain(plain(), limiter(2));
    let request = || chat(&client, &server).build().expect("a request");
    let scope = Scope::new().with_priority(Priority::Bulk);
    scope
        .run(async {
            assert_eq!(class(&client.execute(request()).await.expect("an answer")), Priority::Bulk);
            let (client, request) = (client.clone(), request());
            let spawned = tokio::spawn(async move { client.execute(request).await }.in_current_scope());
            assert_eq!(class(&spawned.await.expect("no panic").expect("an answer")), Priority::Bulk);
        })
        .await;
}

#[tokio::test]
async fn what_the_call_says_goes_before_what_the_scope_says() {
    let server = Server::answering(Reply::ok()).await;
    let client = chain(plain(), limiter(2));
    let call = chat(&client, &server).with_extension(Call::new(Priority::Interactive)).send();
    assert_eq!(class(&Priority::Bulk.scope(call).await.expect("an answer")), Priority::Interactive);
    let open = chat(&client, &server).with_extension(Call::arrived()).send();
    assert_eq!(class(&Priority::Bulk.scope(open).await.expect("an answer")), Priority::Bulk);
}

#[tokio::test]
async fn a_lane_or_a_model_in_the_extensions_is_heard() {
    let server = Server::answering(Reply::ok()).await;
    let client = chain(plain(), limiter(2));
    let lane = |response: Response| response.extensions().get::<Admitted>().expect("admitted").lane().to_string();
    let chosen = chat(&client, &server).with_extension(LaneKey::new("account-7", "m"));
    assert_eq!(lane(chosen.send().await.expect("an answer")), "account-7|m");
    let named = chat(&client, &server).with_extension(Model::new("other"));
    assert_eq!(lane(named.send().await.expect("an answer")), format!("http://{}/v1|other", server.addr()));
}

#[tokio::test]
async fn the_time_that_remains_goes_to_the_server() {
    let server = Server::answering(Reply::ok()).await;
    let name = http::HeaderName::from_static("x-time-left-ms");
    let client = chain(plain(), InflightLimitLayer::new(limiter(2)).deadline_header(name.clone()));
    let call = Call::new(Priority::Default).with_timeout(Duration::from_secs(60));
    chat(&client, &server).with_extension(call).send().await.expect("an answer");
    chat(&client, &server).send().await.expect("an answer");

    let sent = server.requests();
    let left: u64 = sent[0].headers[&name].to_str().expect("text").parse().expect("a number");
    assert!((1..=60_000).contains(&left), "{left}");
    assert!(!sent[1].headers.contains_key(&name), "it has no deadline");
}
