//! The common name of a certificate: the one field of it that the PROXY protocol has a place for.

const SEQUENCE: u8 = 0x30;
const SET: u8 = 0x31;
const OBJECT_IDENTIFIER: u8 = 0x06;
/// The tag of the field that says which version of X.509 a certificate has.
const VERSION: u8 = 0xa0;
/// 2.5.4.3.
const COMMON_NAME: &[u8] = &[0x55, 0x04, 0x03];
/// The kinds of string that are UTF-8 or a part of it: UTF8String, PrintableString, IA5String, TeletexString of ASCII.
const STRINGS: [u8; 4] = [0x0c, 0x13, 0x16, 0x14];

/// The last common name in the subject of the certificate `der` (RFC 5280 section 4.1.2.6), which is the most specific one.
/// `None` if it has none, or cannot be read.
pub fn common_name(der: &[u8]) -> Option<&str> {
    let mut certificate = Reader(der).enter(SEQUENCE)?.enter(SEQUENCE)?;
    if certificate.next_tag() == Some(VERSION) {
        certificate.take()?;
    }
    // The serial number, the algorithm, the issuer, the validity.
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

/// Elements of DER that follow each other.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn next_tag(&self) -> Option<u8> {
        self.0.first().copied()
    }

    /// The next element's tag and content.
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

    /// The content of the next element, which has this tag.
    fn enter(&mut self, tag: u8) -> Option<Reader<'a>> {
        self.take()
            .filter(|&(found, _)| found == tag)
            .map(|(_, content)| Reader(content))
    }
}

#[cfg(test)]
mod tests {
    use openssl::asn1::Asn1Time;
    use openssl::hash::MessageDigest;
    use openssl::nid::Nid;
    use openssl::pkey::PKey;
    use openssl::x509::{X509, X509NameBuilder};

    use super::*;

    fn certificate(names: &[(Nid, &str)], version: i32) -> Vec<u8> {
        let key = PKey::generate_ed25519().unwrap();
        let mut name = X509NameBuilder::new().unwrap();
        for (kind, value) in names {
            name.append_entry_by_nid(*kind, value).unwrap();
        }
        let name = name.build();
        let mut builder = X509::builder().unwrap();
        builder.set_version(version).unwrap();
        builder.set_subject_name(&name).unwrap();
        builder.set_pubkey(&key).unwrap();
        builder
            .set_not_before(&Asn1Time::days_from_now(0).unwrap())
            .unwrap();
        builder
            .set_not_after(&Asn1Time::days_from_now(1).unwrap())
            .unwrap();
        builder.sign(&key, MessageDigest::null()).unwrap();
        builder.build().to_der().unwrap()
    }

    #[test]
    fn the_last_common_name_of_the_subject_is_found() {
        let organisation = (Nid::ORGANIZATIONNAME, "Slipstream");
        let names = [
            organisation,
            (Nid::COMMONNAME, "group"),
            (Nid::COMMONNAME, "Zoë"),
        ];
        for version in [0, 2] {
            assert_eq!(common_name(&certificate(&names, version)), Some("Zoë"));
            assert_eq!(common_name(&certificate(&[organisation], version)), None);
        }
    }

    #[test]
    fn what_is_cut_short_has_no_name_and_does_no_harm() {
        let whole = certificate(&[(Nid::COMMONNAME, "name")], 2);
        for length in 0..whole.len() {
            assert_eq!(common_name(&whole[..length]), None);
        }
        for index in 0..whole.len() {
            let mut damaged = whole.clone();
            damaged[index] ^= 0xff;
            common_name(&damaged);
        }
    }
}
