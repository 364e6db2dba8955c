//! What the headers of an answer say remains of the provider's budgets.

use http::HeaderMap;

use crate::engine::quota::Dimension;

/// OpenAI and those who speak like it have the first two, Anthropic the others.
const NAMES: [(&str, Dimension); 6] = [
    ("x-ratelimit-remaining-requests", Dimension::Requests),
    ("x-ratelimit-remaining-tokens", Dimension::Tokens),
    ("anthropic-ratelimit-requests-remaining", Dimension::Requests),
    ("anthropic-ratelimit-tokens-remaining", Dimension::Tokens),
    ("anthropic-ratelimit-input-tokens-remaining", Dimension::InputTokens),
    ("anthropic-ratelimit-output-tokens-remaining", Dimension::OutputTokens),
];

/// By dimension; `None` if they say nothing. Of several figures for one, the least; what is no count is passed over.
pub(super) fn remaining(headers: &HeaderMap) -> Option<[Option<u64>; 4]> {
    let mut remaining = [None; 4];
    for (name, dimension) in NAMES {
        let counts = headers.get_all(name).iter().filter_map(|value| count(value.as_bytes()));
        let known = &mut remaining[dimension as usize];
        *known = counts.chain(*known).min();
    }
    remaining.iter().any(Option::is_some).then_some(remaining)
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

    fn said(headers: &[(&'static str, &str)]) -> Option<[Option<u64>; 4]> {
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
    fn what_is_no_count_is_passed_over() {
        let name = "x-ratelimit-remaining-requests";
        let long = "9".repeat(10_000);
        for value in
            ["", " ", "-1", "-0", "+5", "1e3", "12.5", "0x10", "five", "5 requests", "1,000", "\u{664}", "NaN", &long]
        {
            assert_eq!(said(&[(name, value)]), None, "{value}");
        }
        assert_eq!(said(&[("x-ratelimit-limit-requests", "60"), ("x-ratelimit-reset-requests", "1s")]), None);
        assert_eq!(said(&[(name, " 00012 ")]), Some([Some(12), None, None, None]));
    }
}
