//! `Accept-Encoding` and `Cache-Control`: the headers that decide on compression.
//!
//! The content coding `deflate` is not offered: browsers disagree on its format.

use crate::Codec;

/// Chooses the codec for a response from the value of `Accept-Encoding` (RFC 9110, section 12.5.3):
/// the one of `offered` with the highest weight, and the first of them among equals. Returns `None`
/// if the client accepts none of them, or prefers `identity`.
///
/// An element that does not follow the grammar is ignored, and of several for one coding the first
/// counts.
pub fn choose(
    accept_encoding: &[u8],
    offered: &[&'static dyn Codec],
) -> Option<&'static dyn Codec> {
    let identity = weight(accept_encoding, |name| is_same(name, "identity"));
    let identity = identity.unwrap_or(Weight(0));
    let mut best = None;
    for &codec in offered {
        let own = weight(accept_encoding, |name| is_named(codec, name))
            .or_else(|| weight(accept_encoding, |name| name == b"*"))
            .unwrap_or(Weight(0));
        let is_better = best.is_none_or(|(_, best)| own > best);
        if own > Weight(0) && own >= identity && is_better {
            best = Some((codec, own));
        }
    }
    best.map(|(codec, _)| codec)
}

/// Returns true if a value of `Cache-Control` has the directive `no-transform` (RFC 9111, section
/// 5.2.2.6).
pub fn forbids_transformation(cache_control: &[u8]) -> bool {
    let (mut is_quoted, mut is_escaped) = (false, false);
    let mut directives = cache_control.split(|byte| {
        let is_plain = !std::mem::replace(&mut is_escaped, is_quoted && *byte == b'\\');
        if is_plain && *byte == b'"' {
            is_quoted = !is_quoted;
        }
        *byte == b',' && !is_quoted
    });
    directives.any(|directive| {
        let name = directive.split(|byte| *byte == b'=').next();
        trimmed(name.unwrap_or_default()).eq_ignore_ascii_case(b"no-transform")
    })
}

/// A weight, in thousandths.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Weight(u16);

/// Returns the weight of the first element of `Accept-Encoding` whose name `is_meant`.
fn weight(accept_encoding: &[u8], is_meant: impl Fn(&[u8]) -> bool) -> Option<Weight> {
    let elements = accept_encoding.split(|byte| *byte == b',');
    let mut meant = elements
        .filter_map(parse)
        .filter(|(name, _)| is_meant(name));
    meant.next().map(|(_, weight)| weight)
}

fn is_named(codec: &dyn Codec, name: &[u8]) -> bool {
    let mut names = [codec.name()]
        .into_iter()
        .chain(codec.aliases().iter().copied());
    names.any(|own| is_same(name, own))
}

fn is_same(name: &[u8], expected: &str) -> bool {
    name.eq_ignore_ascii_case(expected.as_bytes())
}

/// Parses a coding and its weight: `codings [ OWS ";" OWS "q=" qvalue ]`.
fn parse(element: &[u8]) -> Option<(&[u8], Weight)> {
    let mut parts = element.splitn(2, |byte| *byte == b';');
    let name = trimmed(parts.next()?);
    let Some(parameter) = parts.next().map(trimmed) else {
        return Some((name, Weight(1000)));
    };
    let (q, value) = parameter.split_at_checked(2)?;
    let weight = parse_weight(value)?;
    q.eq_ignore_ascii_case(b"q=").then_some((name, weight))
}

/// Parses `( "0" [ "." 0*3DIGIT ] ) / ( "1" [ "." 0*3("0") ] )` (RFC 9110, section 12.4.2).
fn parse_weight(value: &[u8]) -> Option<Weight> {
    let (whole, rest) = value.split_first()?;
    let decimals = match rest.split_first() {
        None => &[],
        Some((b'.', decimals)) if decimals.len() <= 3 => decimals,
        Some(_) => return None,
    };
    let mut thousandths = 0;
    for place in 0..3 {
        let digit = match decimals.get(place) {
            None => 0,
            Some(digit @ b'0'..=b'9') => u16::from(digit - b'0'),
            Some(_) => return None,
        };
        thousandths = 10 * thousandths + digit;
    }
    match whole {
        b'0' => Some(Weight(thousandths)),
        b'1' if thousandths == 0 => Some(Weight(1000)),
        _ => None,
    }
}

/// Strips optional whitespace from both ends.
fn trimmed(mut bytes: &[u8]) -> &[u8] {
    while let [b' ' | b'\t', rest @ ..] | [rest @ .., b' ' | b'\t'] = bytes {
        bytes = rest;
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec;

    const GZIP: Option<&dyn Codec> = Some(codec::GZIP);
    const ZSTD: Option<&dyn Codec> = Some(codec::ZSTD);
    const GZIP_ALONE: &[&dyn Codec] = &[codec::GZIP];
    const GZIP_FIRST: &[&dyn Codec] = &[codec::GZIP, codec::ZSTD];
    const ZSTD_FIRST: &[&dyn Codec] = &[codec::ZSTD, codec::GZIP];

    #[test]
    fn the_highest_weight_wins() {
        for (value, chosen) in [
            ("gzip;q=0.5, zstd", ZSTD),
            ("gzip, zstd;q=0.999", GZIP),
            ("gzip;q=0.1, zstd;q=0.2", ZSTD),
            ("gzip;q=0.002, zstd;q=0.001", GZIP),
            ("zstd;q=0, gzip;q=0.001", GZIP),
            ("gzip;q=0, zstd;q=0", None),
            ("gzip;q=0.000", None),
            ("br, deflate", None),
            ("", None),
        ] {
            for offered in [GZIP_FIRST, ZSTD_FIRST] {
                assert_eq!(choose(value.as_bytes(), offered), chosen, "{value:?}");
            }
        }
    }

    #[test]
    fn among_equals_the_servers_order_counts() {
        for value in [
            "gzip, zstd",
            "zstd,gzip",
            "*",
            "zstd;q=0.5,gzip;q=0.50",
            "*;q=0.1",
        ] {
            assert_eq!(choose(value.as_bytes(), GZIP_FIRST), GZIP, "{value:?}");
            assert_eq!(choose(value.as_bytes(), ZSTD_FIRST), ZSTD, "{value:?}");
        }
        assert_eq!(choose(b"gzip, zstd", GZIP_ALONE), GZIP);
        assert_eq!(choose(b"zstd", GZIP_ALONE), None);
        assert_eq!(choose(b"gzip", &[]), None);
    }

    #[test]
    fn an_asterisk_stands_for_codings_that_are_not_named() {
        for (value, chosen) in [
            ("*;q=0", None),
            ("*;q=0, gzip", GZIP),
            ("gzip;q=0, *", ZSTD),
            ("gzip;q=0.2, *;q=0.1", GZIP),
            ("gzip;q=0.1, *;q=0.2", ZSTD),
        ] {
            assert_eq!(choose(value.as_bytes(), GZIP_FIRST), chosen, "{value:?}");
        }
    }

    #[test]
    fn identity_may_be_preferred() {
        for (value, chosen) in [
            ("identity;q=1, gzip;q=0.5", None),
            ("identity;q=0.5, gzip;q=0.5", GZIP),
            ("identity;q=0.4, gzip;q=0.5", GZIP),
            ("identity, *;q=0.5", None),
            ("identity;q=0, gzip", GZIP),
            ("identity", None),
            ("identity;q=0", None),
        ] {
            assert_eq!(choose(value.as_bytes(), GZIP_ALONE), chosen, "{value:?}");
        }
    }

    #[test]
    fn case_and_whitespace_do_not_matter() {
        for value in [
            "GZip",
            "x-gzip",
            "X-GZIP ; Q=0.3",
            "  gzip\t;\tq=1.  ",
            ",, ,gzip;q=1.000,",
            "br\t,gzip",
        ] {
            assert_eq!(choose(value.as_bytes(), GZIP_FIRST), GZIP, "{value:?}");
        }
    }

    #[test]
    fn malformed_elements_are_ignored() {
        for value in [
            "gzip;q=2",
            "gzip;q=1.001",
            "gzip;q=0.1234",
            "gzip;q=-1",
            "gzip;q=.5",
            "gzip;q=",
            "gzip;q",
            "gzip;",
            "gzip;x=1",
            "gzip;q=0,5",
            "gzip;q = 1",
            "gzip;q=1;q=1",
            "gzip gzip",
            "g zip",
            "gzip\0",
        ] {
            let value = value.as_bytes();
            assert_eq!(
                choose(value, GZIP_ALONE),
                None,
                "{:?}",
                value.escape_ascii()
            );
            let others = [value, b", zstd;q=0.1"].concat();
            assert_eq!(
                choose(&others, GZIP_FIRST),
                ZSTD,
                "{:?}",
                value.escape_ascii()
            );
        }
        assert_eq!(
            choose(b"gzip;q=0, gzip", GZIP_FIRST),
            None,
            "the first counts"
        );
    }

    #[test]
    fn transformation_is_forbidden_by_a_directive() {
        for value in [
            "no-transform",
            "No-Transform",
            "public, no-transform",
            "no-transform,max-age=1",
            "private=\"a, b\" ,\tno-transform ",
            "x=\"a\\\"b, c\", no-transform",
            "no-transform=1",
        ] {
            assert!(forbids_transformation(value.as_bytes()), "{value:?}");
        }
        for value in [
            "",
            "public",
            "no-transformation",
            "x-no-transform",
            "private=\"no-transform\"",
            "private=\"a, no-transform, b\"",
            "private=\"a\\\", no-transform\"",
            "x=no-transform",
        ] {
            assert!(!forbids_transformation(value.as_bytes()), "{value:?}");
        }
    }
}
