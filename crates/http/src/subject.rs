//! Common name of a certificate, for the PROXY protocol.

const SEQUENCE: u8 = 0x30;
const SET: u8 = 0x31;
const OBJECT_IDENTIFIER: u8 = 0x06;
/// Tag of the version field.
const VERSION: u8 = 0xa0;
/// Object identifier 2.5.4.3.
const COMMON_NAME: &[u8] = &[0x55, 0x04, 0x03];
/// String types that are UTF-8 or a subset of it: UTF8String, PrintableString, IA5String, and
/// TeletexString as far as it is ASCII.
const STRINGS: [u8; 4] = [0x0c, 0x13, 0x16, 0x14];

/// Returns the last common name in the subject of the certificate `der` (RFC 5280, 4.1.2.6), which
/// is the most specific one. Returns `None` if there is none, or if the certificate is malformed.
pub fn common_name(der: &[u8]) -> Option<&str> {
    let mut certificate = Reader(der).enter(SEQUENCE)?.enter(SEQUENCE)?;
    if certificate.next_tag() == Some(VERSION) {
        certificate.take()?;
    }
    // Serial number, algorithm, issuer, validity.
    for _ in 0..4 {
        certificate.take()?;
    }
    let mut names = certificate.enter(SEQUENCE)?;
    let mut found = None;
    while !names.0.is_empty() {
        let mut relative = names.enter(SET)?;
        while !relative.0.is_empty() {
            let mut attribute = relative.enter(SEQUENCE)?;
            let kind = attribute.enter(OBJECT_IDENTIFIER)?;
            let (tag, value) = attribute.take()?;
            if kind.0 == COMMON_NAME && STRINGS.contains(&tag) {
                found = std::str::from_utf8(value).ok();
            }
        }
    }
    found
}

/// Reader of consecutive DER elements.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn next_tag(&self) -> Option<u8> {
        self.0.first().copied()
    }

    /// Returns tag and content of the next element.
    fn take(&mut self) -> Option<(u8, &'a [u8])> {
        let (&[tag, first], mut rest) = self.0.split_first_chunk()?;
        let mut length = usize::from(first);
        if length & 0x80 != 0 {
            let count = length & 0x7f;
            if !(1..=4).contains(&count) {
                return None;
            }
            let (digits, after) = rest.split_at_checked(count)?;
            length = digits
                .iter()
                .fold(0, |length, &digit| length << 8 | usize::from(digit));
            rest = after;
        }
        let (content, rest) = rest.split_at_checked(length)?;
        self.0 = rest;
        Some((tag, content))
    }

    /// Returns the content of the next element if it has this tag.
    fn enter(&mut self, tag: u8) -> Option<Reader<'a>> {
        self.take()
            .filter(|&(found, _)| found == tag)
            .map(|(_, content)| Reader(content))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Certificates made by OpenSSL, of versions 1 and 3: with two common names in the subject, and
    /// with none.
    const NAMED: [&[u8]; 2] = [
        include_bytes!("../tests/certificates/v1-named.der"),
        include_bytes!("../tests/certificates/v3-named.der"),
    ];
    const UNNAMED: [&[u8]; 2] = [
        include_bytes!("../tests/certificates/v1-unnamed.der"),
        include_bytes!("../tests/certificates/v3-unnamed.der"),
    ];

    #[test]
    fn the_last_common_name_of_the_subject_is_found() {
        for certificate in NAMED {
            assert_eq!(common_name(certificate), Some("Zoë"));
        }
        for certificate in UNNAMED {
            assert_eq!(common_name(certificate), None);
        }
    }

    #[test]
    fn a_truncated_or_damaged_certificate_does_no_harm() {
        let whole = NAMED[1];
        for length in 0..whole.len() {
            assert_eq!(common_name(&whole[..length]), None);
        }
        for index in 0..whole.len() {
            let mut damaged = whole.to_vec();
            damaged[index] ^= 0xff;
            common_name(&damaged);
        }
    }
}
