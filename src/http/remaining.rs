//! What the headers of an answer say remains of the provider's budgets.

use http::HeaderMap;

use crate::engine::quota::Dimension;

/// What is said by dimension; `None` where nothing is.
type Figures = [Option<u64>; 4];

/// What remains and of how much. OpenAI and those who speak like it have the first two, Anthropic the others.
const NAMES: [(&str, &str, Dimension); 6] = [
    ("x-ratelimit-remaining-requests", "x-ratelimit-limit-requests", Dimension::Requests),
    ("x-ratelimit-remaining-tokens", "x-ratelimit-limit-tokens", Dimension::Tokens),
    ("anthropic-ratelimit-requests-remaining", "anthropic-ratelimit-requests-limit", Dimension::Requests),
    ("anthropic-ratelimit-tokens-remaining", "anthropic-ratelimit-tokens-limit", Dimension::Tokens),
    ("anthropic-ratelimit-input-tokens-remaining", "anthropic-ratelimit-input-tokens-limit", Dimension::InputTokens),
    ("anthropic-ratelimit-output-tokens-remaining", "anthropic-ratelimit-output-tokens-limit", Dimension::OutputTokens),
];

/// What remains, and of how much; `None` if neither is said. Of several figures for one, the least; what is no count is
/// passed over.
pub(super) fn remaining(headers: &HeaderMap) -> Option<(Figures, Figures)> {
    let (mut left, mut of) = ([None; 4], [None; 4]);
    for (remaining, limit, dimension) in NAMES {
        note(headers, remaining, &mut left[dimension as usize]);
        note(headers, limit, &mut of[dimension as usize]);
    }
    left.iter().chain(&of).any(Option::is_some).then_some((left, of))
}

fn note(headers: &HeaderMap, name: &str, known: &mut Option<u64>) {
    let counts = headers.get_all(name).iter().filter_map(|value| count(value.as_bytes()));
    *known = counts.chain(*known).min();
}

/// Digits alone: gateways say -1 for "unlimited", and a sign, a fraction or a unit is no count that can be trusted.
fn count(value: &[u8]) -> Option<u64> {
    let digits = value.trim_ascii();
    let is_count = !digits.is_empty() && digits.iter().all(u8::is_ascii_digit);
    if is_count { std::str::from_utf8(digits).ok()?.parse().ok() } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;

    fn said(headers: &[(&'static str, &str)]) -> Option<Figures> {
        read(headers).map(|(left, _)| left)
    }

    fn read(headers: &[(&'static str, &str)]) -> Option<(Figures, Figures)> {
        let value = |text: &str| HeaderValue::from_bytes(text.as_bytes()).unwrap();
        let mut map = HeaderMap::new();
        for (name, text) in headers {
            map.append(*name, value(text));
        }
        remaining(&map)
    }

    #[test]
    fn each_provider_is_heard_in_its_dimensions() {
        let openai = [("x-ratelimit-remaining-requests", "59"), ("x-ratelimit-remaining-tokens", "149984")];
        assert_eq!(said(&openai), Some([Some(59), Some(149_984), None, None]));
        let anthropic = [
            ("anthropic-ratelimit-requests-remaining", "49"),
            ("anthropic-ratelimit-tokens-remaining", "88000"),
            ("anthropic-ratelimit-input-tokens-remaining", "80000"),
            ("anthropic-ratelimit-output-tokens-remaining", "0"),
        ];
        assert_eq!(said(&anthropic), Some([Some(49), Some(88_000), Some(80_000), Some(0)]));
    }

    #[test]
    fn of_several_figures_the_least_is_believed() {
        let name = "x-ratelimit-remaining-tokens";
        assert_eq!(said(&[(name, "7"), (name, "5"), (name, "9")]), Some([None, Some(5), None, None]));
        assert_eq!(said(&[(name, "7"), ("anthropic-ratelimit-tokens-remaining", "6")]).unwrap()[1], Some(6));
        assert_eq!(said(&[(name, "many"), (name, "8")]).unwrap()[1], Some(8));
    }

    #[test]
    fn each_provider_is_heard_in_what_it_allows() {
        let of = |headers: &[(&'static str, &str)]| read(headers).map(|(_, of)| of);
        let openai = [("x-ratelimit-limit-requests", "60"), ("x-ratelimit-limit-tokens", "150000")];
        assert_eq!(of(&openai), Some([Some(60), Some(150_000), None, None]));
        let anthropic = [
            ("anthropic-ratelimit-requests-limit", "50"),
            ("anthropic-ratelimit-tokens-limit", "90000"),
            ("anthropic-ratelimit-input-tokens-limit", "80000"),
            ("anthropic-ratelimit-output-tokens-limit", "10000"),
        ];
        assert_eq!(of(&anthropic), Some([Some(50), Some(90_000), Some(80_000), Some(10_000)]));
        for value in ["", "-1", "NaN", "inf", "1e9", "unlimited", "99999999999999999999999"] {
            assert_eq!(of(&[("x-ratelimit-limit-tokens", value)]), None, "{value}");
        }
    }

    #[test]
    fn what_is_no_count_is_passed_over() {
        let name = "x-ratelimit-remaining-requests";
        let long = "9".repeat(10_000);
        for value in
            ["", " ", "-1", "-0", "+5", "1e3", "12.5", "0x10", "five", "5 requests", "1,000", "\u{664}", "NaN", &long]
        {
            assert_eq!(said(&[(name, value)]), None, "{value}");
        }
        assert_eq!(said(&[("x-ratelimit-used-requests", "60"), ("x-ratelimit-reset-requests", "1s")]), None);
        assert_eq!(said(&[(name, " 00012 ")]), Some([Some(12), None, None, None]));
    }
}
