//! The PROXY protocol.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use proptest::prelude::*;
use slipstream_http::Connection;
use slipstream_http::proxy_header::{MAX_LENGTH, Malformed, ProxyHeader, read, write};
use slipstream_http::settings::ProxyProtocol;

use crate::support::connection;

const SIGNATURE: &[u8] = b"\r\n\r\n\0\r\nQUIT\n";

fn addresses(client: &str, server: &str) -> Option<(SocketAddr, SocketAddr)> {
    Some((client.parse().unwrap(), server.parse().unwrap()))
}

/// Section 2.1: the longest line of each kind, and bytes after a header.
#[test]
fn lines_are_read() {
    let cases = [
        (
            "PROXY TCP4 255.255.255.255 255.255.255.255 65535 65535\r\n",
            addresses("255.255.255.255:65535", "255.255.255.255:65535"),
        ),
        (
            "PROXY TCP6 ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff 65535 65535\r\n",
            addresses(
                "[ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff]:65535",
                "[ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff]:65535",
            ),
        ),
        (
            "PROXY TCP4 192.168.0.1 192.168.0.11 56324 443\r\n",
            addresses("192.168.0.1:56324", "192.168.0.11:443"),
        ),
        ("PROXY UNKNOWN\r\n", None),
        (
            "PROXY UNKNOWN ffff:f...f:ffff ffff:f...f:ffff 65535 65535\r\n",
            None,
        ),
    ];
    for (line, addresses) in cases {
        let expected = ProxyHeader {
            addresses,
            length: line.len(),
        };
        let followed = format!("{line}GET / HTTP/1.1\r\n");
        assert_eq!(read(followed.as_bytes()), Ok(Some(expected)), "{line}");
        for length in 0..line.len() {
            assert_eq!(read(&line.as_bytes()[..length]), Ok(None), "{line}");
        }
    }
}

#[test]
fn other_lines_are_refused() {
    for line in [
        "GET / HTTP/1.1\r\n",
        "PROXY\r\n",
        "PROXY TCP4 1.2.3.4 5.6.7.8 1 2\n",
        "PROXY TCP4  1.2.3.4 5.6.7.8 1 2\r\n",
        "PROXY TCP4 1.2.3.4 5.6.7.8 1\r\n",
        "PROXY TCP4 1.2.3.4 5.6.7.8 1 2 3\r\n",
        "PROXY TCP4 1.2.3.4 5.6.7.8 1 65536\r\n",
        "PROXY TCP4 1.2.3.4 5.6.7.8 +1 2\r\n",
        "PROXY TCP4 1.2.3.4 5.6.7.8 01 2\r\n",
        "PROXY TCP4 1.2.3.4 5.6.7.8  2\r\n",
        "PROXY TCP4 ::1 ::2 1 2\r\n",
        "PROXY TCP6 1.2.3.4 5.6.7.8 1 2\r\n",
        "PROXY UDP4 1.2.3.4 5.6.7.8 1 2\r\n",
        "PROXY TCP4 \u{661}.2.3.4 5.6.7.8 1 2\r\n",
    ] {
        assert_eq!(read(line.as_bytes()), Err(Malformed), "{line}");
    }
    let endless = format!("PROXY UNKNOWN {}", "x".repeat(94));
    assert_eq!(read(&endless.as_bytes()[..106]), Ok(None));
    assert_eq!(read(&endless.as_bytes()[..107]), Err(Malformed));
}

fn version_2(command: u8, family: u8, content: &[u8]) -> Vec<u8> {
    let length = u16::try_from(content.len()).unwrap();
    let mut header = [SIGNATURE, &[command, family]].concat();
    header.extend(length.to_be_bytes());
    header.extend(content);
    header
}

#[test]
fn binary_headers_are_read() {
    let ipv4 = [192, 168, 0, 1, 192, 168, 0, 11, 0xdc, 0x04, 0x01, 0xbb];
    let known = addresses("192.168.0.1:56324", "192.168.0.11:443");
    let with_values = [&ipv4[..], &[0x04, 0, 2, 0, 0]].concat();
    let longest = [&ipv4[..], &[0x04, 0x0f, 0xe1], &[0; 0xfe1]].concat();
    let cases = [
        (version_2(0x21, 0x11, &ipv4), known),
        (version_2(0x21, 0x11, &with_values), known),
        (version_2(0x21, 0x11, &longest), known),
        (version_2(0x20, 0x11, &ipv4), None),
        (version_2(0x20, 0x00, &[]), None),
        (version_2(0x21, 0x00, &[1, 2, 3]), None),
        (version_2(0x21, 0x12, &ipv4), None),
        (version_2(0x21, 0x31, &[0; 216]), None),
    ];
    assert_eq!(cases[2].0.len(), MAX_LENGTH);
    for (header, addresses) in cases {
        let expected = ProxyHeader {
            addresses,
            length: header.len(),
        };
        let followed = [&header[..], b"\x16\x03\x01"].concat();
        assert_eq!(read(&followed), Ok(Some(expected)));
        for length in 0..header.len() {
            assert_eq!(read(&header[..length]), Ok(None));
        }
    }
}

#[test]
fn other_binary_headers_are_refused() {
    for header in [
        version_2(0x11, 0x11, &[0; 12]),
        version_2(0x22, 0x11, &[0; 12]),
        version_2(0x21, 0x13, &[0; 12]),
        version_2(0x21, 0x41, &[0; 12]),
        version_2(0x21, 0x10, &[0; 12]),
        version_2(0x21, 0x11, &[0; 11]),
        version_2(0x21, 0x21, &[0; 35]),
        version_2(0x21, 0x11, &[0; 14]),
        version_2(0x21, 0x11, &[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 4, 0, 1]),
        version_2(0x21, 0x11, &vec![0; MAX_LENGTH - 15]),
    ] {
        assert_eq!(read(&header), Err(Malformed), "{header:x?}");
    }
}

#[test]
fn facts_of_the_tls_session_are_written() {
    let mut connection = connection();
    connection.alpn = Some(b"h2".to_vec());
    let header = write(ProxyProtocol::V2, &connection);
    let contains = |part: &[u8]| header.windows(part.len()).any(|window| window == part);
    assert!(contains(b"\x01\0\x02h2"));
    assert!(contains(b"\x02\0\x0bexample.com"));
    // TLS without a certificate of the client, so nothing was verified.
    assert!(contains(b"\x20\0\x28\x01\0\0\0\x01"));
    assert!(contains(b"\x21\0\x07TLSv1.3"));
    assert!(contains(b"\x23\0\x16TLS_AES_256_GCM_SHA384"));
}

fn address() -> impl Strategy<Value = SocketAddr> {
    let ip = prop_oneof![
        any::<u32>().prop_map(|bits| IpAddr::from(Ipv4Addr::from_bits(bits))),
        any::<u128>().prop_map(|bits| IpAddr::from(Ipv6Addr::from_bits(bits))),
    ];
    (ip, any::<u16>()).prop_map(SocketAddr::from)
}

fn any_connection() -> impl Strategy<Value = Connection> {
    let name = prop::option::of("[a-z.]{0,600}");
    let alpn = prop::option::of(prop::collection::vec(any::<u8>(), 0..600));
    (address(), address(), name, alpn, "[A-Z_]{0,600}").prop_map(
        |(client, server, server_name, alpn, cipher_suite)| Connection {
            client,
            server,
            server_name,
            alpn,
            cipher_suite,
            ..connection()
        },
    )
}

fn canonical(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

proptest! {
    #[test]
    fn written_headers_are_read(connection in any_connection()) {
        for version in [ProxyProtocol::V1, ProxyProtocol::V2] {
            let header = write(version, &connection);
            let read_back = read(&header).unwrap().unwrap();
            let (client, server) = read_back.addresses.unwrap();
            prop_assert_eq!(canonical(client), canonical(connection.client));
            prop_assert_eq!(canonical(server), canonical(connection.server));
            prop_assert_eq!(read_back.length, header.len());
            for length in 0..header.len() {
                prop_assert_eq!(read(&header[..length]), Ok(None));
            }
        }
    }

    #[test]
    fn any_bytes_are_read_without_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..64), start in 0..3_usize) {
        let start = [&b""[..], b"PROXY ", SIGNATURE][start];
        let bytes = [start, &bytes].concat();
        if let Ok(Some(header)) = read(&bytes) {
            prop_assert!(header.length <= bytes.len());
        }
    }
}
