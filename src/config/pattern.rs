/// Whether the whole of `text` fits `pattern`, in which `*` stands for any run of characters.
pub(super) fn matches(pattern: &str, text: &str) -> bool {
    let Some((head, rest)) = pattern.split_once('*') else {
        return pattern == text;
    };
    let (middle, tail) = rest.rsplit_once('*').unwrap_or(("", rest));
    let Some(mut text) = text.strip_prefix(head).and_then(|text| text.strip_suffix(tail)) else {
        return false;
    };
    // The leftmost place for each part leaves the most room for the parts after it, so no backtracking is needed.
    middle.split('*').all(|part| match text.split_once(part) {
        Some((_, after)) => {
            text = after;
            true
        }
        None => false,
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::matches;

    #[test]
    fn a_star_stands_for_any_run_of_characters() {
        for (pattern, text) in [
            ("a|b", "a|b"),
            ("*", ""),
            ("*", "https://gw/v1|m"),
            ("**", "x"),
            ("https://gw/*|acme/*", "https://gw/v1|acme/smart"),
            ("*|m", "https://gw/v1|m"),
            ("a*b*c", "abbc"),
            ("a*ä*z", "a🦀äz"),
        ] {
            assert!(matches(pattern, text), "{pattern} {text}");
        }
    }

    #[test]
    fn everything_else_is_literal_and_nothing_is_used_twice() {
        for (pattern, text) in [
            ("a|b", "a|bc"),
            ("a.c", "abc"),
            ("A", "a"),
            ("ab*ba", "aba"),
            ("a*bc*c", "abc"),
            ("*x*", "abc"),
            ("", "a"),
        ] {
            assert!(!matches(pattern, text), "{pattern} {text}");
        }
    }

    proptest! {
        #[test]
        fn agrees_with_the_definition(pattern in "[ab*]{0,8}", text in "[ab]{0,10}") {
            prop_assert_eq!(matches(&pattern, &text), by_definition(pattern.as_bytes(), text.as_bytes()));
        }
    }

    fn by_definition(pattern: &[u8], text: &[u8]) -> bool {
        match pattern {
            [] => text.is_empty(),
            [b'*', rest @ ..] => (0..=text.len()).any(|n| by_definition(rest, &text[n..])),
            [byte, rest @ ..] => text.first() == Some(byte) && by_definition(rest, &text[1..]),
        }
    }
}
