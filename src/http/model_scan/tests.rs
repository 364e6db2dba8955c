use std::fmt;

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, Visitor};

use super::*;

fn model(body: impl AsRef<[u8]>) -> Option<String> {
    top_level(body.as_ref()).model.map(Cow::into_owned)
}

fn found(name: &str) -> Option<String> {
    Some(name.to_owned())
}

#[test]
fn a_plain_model_is_borrowed_from_the_body() {
    let body = br#"{"stream":true,"model":"m1","n":1}"#;
    assert!(matches!(top_level(body).model, Some(Cow::Borrowed("m1"))));
}

/// Case 57.
#[test]
fn the_last_of_duplicate_keys_wins() {
    assert_eq!(model(r#"{"model":"small","messages":[],"model":"large"}"#), found("large"));
    assert_eq!(model(r#"{"model":"small","\u006dodel":"large"}"#), found("large"));
}

#[test]
fn a_last_duplicate_that_names_nothing_wins_too() {
    for last in ["null", "42", "{}", "\"\"", "\" \""] {
        assert_eq!(model(format!(r#"{{"model":"small","model":{last}}}"#)), None, "{last}");
        assert_eq!(model(format!(r#"{{"model":{last},"model":"small"}}"#)), found("small"), "{last}");
    }
}

/// Case 58.
#[test]
fn only_the_top_level_field_counts() {
    let inner = r#""messages":[{"role":"user","content":"{\"model\":\"fake\"}"}],"metadata":{"model":"inner"},
        "tools":[{"parameters":{"properties":{"model":{"type":"string"}}}}]"#;
    assert_eq!(model(format!("{{{inner}}}")), None);
    assert_eq!(model(format!(r#"{{{inner},"model":"real"}}"#)), found("real"));
}

#[test]
fn keys_and_values_that_merely_look_like_the_model_do_not_count() {
    assert_eq!(model(r#"{"Model":"a","model ":"b","models":"c","mode":"model","\u004dodel":"d"}"#), None);
    assert_eq!(model(r#"{"x":"model","y":":","z":"m1"}"#), None);
    assert_eq!(model(r#"{"x\",\"model\":\"":"m1"}"#), None);
}

/// Case 60.
#[test]
fn the_model_is_found_behind_megabytes_of_messages() {
    let text = "A".repeat(5 << 20);
    let body = format!(r#"{{"messages":[{{"role":"user","content":"{text}"}}],"model":"m9"}}"#);
    assert_eq!(model(body), found("m9"));
}

/// Case 60.
#[test]
fn no_depth_overflows_the_stack() {
    for depth in [10_000, 1_000_000] {
        let (open, close) = (r#"[{"a":"#.repeat(depth), "}]".repeat(depth));
        assert_eq!(model(format!(r#"{{"messages":{open}1{close},"model":"m9"}}"#)), found("m9"));
        assert_eq!(model(format!(r#"{{"messages":{open}"#)), None);
    }
}

/// Case 61.
#[test]
fn a_model_that_is_no_usable_string_is_none() {
    for value in ["null", "42", "-1.5e+3", r#"["a"]"#, r#"{"id":"a"}"#, r#""""#, r#""   ""#, r#""\t\u00a0""#, "true"] {
        assert_eq!(model(format!(r#"{{"model":{value}}}"#)), None, "{value}");
        assert_eq!(model(format!(r#"{{"model":{value},"n":1}}"#)), None, "{value}");
    }
}

/// Case 61.
#[test]
fn long_and_odd_models_stay_whole() {
    let long = "x".repeat(4096);
    assert_eq!(model(format!(r#"{{"model":"{long}"}}"#)), Some(long));
    assert_eq!(model(r#"{"model":"a\u0000b\nc\"d\\"}"#), found("a\0b\nc\"d\\"));
    assert_eq!(model(r#"{"model":" m1 "}"#), found(" m1 "));
}

/// Case 62.
#[test]
fn a_byte_order_mark_is_skipped() {
    assert_eq!(model("\u{feff}{\"model\":\"m1\",\"messages\":[]}"), found("m1"));
    assert_eq!(model("\u{feff}\u{feff}{\"model\":\"m1\"}"), None);
}

#[test]
fn escapes_in_key_and_value_are_decoded() {
    assert_eq!(model(r#"{"\u006d\u006F\u0064\u0065\u006c":"gpt\u002d4o\/\ud83d\ude00é"}"#), found("gpt-4o/😀é"));
    assert_eq!(model(r#"{"model":"\ud83d"}"#), None);
    assert_eq!(model(r#"{"model":"\x"}"#), None);
}

#[test]
fn white_space_may_stand_anywhere() {
    assert_eq!(model(" \r\n\t{ \"model\" \t:\n \"m1\" \r, \"n\" : [ 1 , 2 ] } \n"), found("m1"));
}

#[test]
fn other_bodies_than_objects_have_no_model() {
    for body in ["", " ", "{}", "[]", r#"[{"model":"m1"}]"#, r#""model""#, "model=m1", "\u{feff}", "null"] {
        assert_eq!(model(body), None, "{body}");
    }
}

#[test]
fn a_body_that_is_cut_short_has_no_model() {
    let body = r#"{"model":"m1","a":{"b":["c\"",1.5]},"d":null}"#;
    assert_eq!(model(body), found("m1"));
    for end in 0..body.len() {
        assert_eq!(model(&body[..end]), None, "{}", &body[..end]);
    }
}

#[test]
fn a_malformed_outer_object_has_no_model() {
    for body in [
        r#"{"model":"m1"} x"#,
        r#"{"model":"m1"}{}"#,
        r#"{"model":"m1",}"#,
        r#"{,"model":"m1"}"#,
        r#"{"model" "m1"}"#,
        r#"{"model":"m1" "a":1}"#,
        r#"{"model":"m1","a"}"#,
        r#"{"model":"m1","a":}"#,
        r#"{"model":"m1","a":1 2}"#,
        r#"{"model":"m1","a":?}"#,
        r#"{"model":"m1","a":[}"#,
        r#"{"model":"m1",a:1}"#,
        "{'model':'m1'}",
        "{\"model\":\"m\n1\"}",
    ] {
        assert_eq!(model(body), None, "{body}");
    }
    assert_eq!(model(b"{\"model\":\"m\xff1\"}"), None);
}

/// Documented: the server refuses such a body, whatever lane it waited in.
#[test]
fn what_is_jumped_over_is_not_checked() {
    for value in ["nope", "01", "[1 2}", r#"{"a"}"#, r#""\x""#] {
        assert_eq!(model(format!(r#"{{"a":{value},"model":"m1"}}"#)), found("m1"), "{value}");
    }
    assert_eq!(model(b"{\"a\":\"\xff\",\"model\":\"m1\"}"), found("m1"));
}

#[test]
fn quotes_are_found_at_every_distance() {
    for length in 0..100 {
        for escape in ["", r#"\""#, r"\\", r#"\\\""#] {
            let text = format!("{}{escape}", "x".repeat(length));
            let spaces = " ".repeat(length);
            let body = format!(r#"{{"{text}":[{spaces}"{text}",{spaces}{{"{text}":{length}}}{spaces}],"model":"m1"}}"#);
            assert_eq!(model(&body), found("m1"), "{body}");
        }
    }
}

/// What `serde_json` reads, with the last of duplicate keys, at any depth outside the model.
struct Reference(Option<String>);

impl<'de> Deserialize<'de> for Reference {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(ReferenceVisitor).map(Self)
    }
}

struct ReferenceVisitor;

impl<'de> Visitor<'de> for ReferenceVisitor {
    type Value = Option<String>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut model = None;
        while let Some(key) = map.next_key::<String>()? {
            if key == "model" {
                model = map.next_value::<serde_json::Value>()?.as_str().map(ToOwned::to_owned);
            } else {
                map.next_value::<IgnoredAny>()?;
            }
        }
        Ok(model.filter(|model| !model.trim().is_empty()))
    }
}

fn reference(body: &[u8]) -> Result<Option<String>, serde_json::Error> {
    serde_json::from_slice(body).map(|Reference(model)| model)
}

fn spaced(inner: impl Strategy<Value = String>) -> impl Strategy<Value = String> {
    let space = || select(vec!["", "", "", " ", "\n", "\t \r\n", "                                             "]);
    (space(), inner, space()).prop_map(|(before, inner, after)| format!("{before}{inner}{after}"))
}

fn string() -> impl Strategy<Value = String> {
    let piece = select(vec![
        "a",
        "model",
        "\\\"",
        "\\\\",
        "\\n",
        "\\u00e9",
        "\\ud83d\\ude00",
        "é",
        "😀",
        "{",
        "}",
        "[",
        "]",
        ":",
        ",",
        " ",
        "plain words that fill a word or two",
        "\\/",
        "\\u0000",
    ]);
    vec(piece, 0..6).prop_map(|pieces| format!("\"{}\"", pieces.concat()))
}

fn key() -> impl Strategy<Value = String> {
    let model =
        select(vec!["\"model\"", "\"\\u006dodel\"", "\"mod\\u0065l\"", "\"\\u006d\\u006f\\u0064\\u0065\\u006C\""]);
    prop_oneof![model.prop_map(ToOwned::to_owned), string()]
}

fn members(value: impl Strategy<Value = String>) -> impl Strategy<Value = String> {
    vec((spaced(key()), spaced(value)), 0..6).prop_map(|members| {
        let members: Vec<_> = members.into_iter().map(|(key, value)| format!("{key}:{value}")).collect();
        format!("{{{}}}", members.join(","))
    })
}

fn value() -> impl Strategy<Value = String> {
    let scalar = select(vec!["null", "true", "false", "0", "-12.5e-3", "123456789012345678901234567890", "1E5"]);
    prop_oneof![string(), scalar.prop_map(ToOwned::to_owned)].prop_recursive(4, 40, 5, |inner| {
        prop_oneof![
            members(inner.clone()),
            vec(spaced(inner), 0..6).prop_map(|items| format!("[{}]", items.join(","))),
        ]
    })
}

fn object() -> impl Strategy<Value = String> {
    spaced(members(value()))
}

fn hostile_byte() -> impl Strategy<Value = u8> {
    prop_oneof![select(br#"{}[]":,\ u0mnt-1.e"#.to_vec()), any::<u8>()]
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn valid_objects_give_what_serde_json_gives(body in object()) {
        prop_assert_eq!(model(&body), reference(body.as_bytes()).expect("the generator writes valid JSON"));
    }

    #[test]
    fn prefixes_of_an_object_have_no_model(body in object(), cut in any::<prop::sample::Index>()) {
        let body = body.trim_end().as_bytes();
        prop_assert_eq!(model(&body[..cut.index(body.len())]), None);
    }

    #[test]
    fn damaged_objects_agree_where_serde_json_accepts(
        body in object(),
        damage in vec((any::<prop::sample::Index>(), hostile_byte(), 0..3), 1..4),
    ) {
        let mut body = body.into_bytes();
        for (at, byte, how) in damage {
            let at = at.index(body.len());
            match how {
                0 => body[at] = byte,
                1 => body.insert(at, byte),
                _ => body.truncate(at.max(1)),
            }
        }
        let ours = model(&body);
        if let Ok(theirs) = reference(&body) {
            prop_assert_eq!(ours, theirs);
        }
    }

    #[test]
    fn hostile_bytes_agree_where_serde_json_accepts(body in vec(hostile_byte(), 0..80)) {
        let body = [&b"{\"model\":"[..], &body].concat();
        let ours = model(&body);
        if let Ok(theirs) = reference(&body) {
            prop_assert_eq!(ours, theirs);
        }
    }
}
