//! Published values: RFC 8448, RFC 5869, and the IETF's list for TLS 1.2.

use std::ffi::CStr;

use super::{EXPAND_ONLY, EXTRACT_AND_EXPAND, EXTRACT_ONLY, Kdf, Setting, mode, octets, text};
use crate::common::{SLIPSTREAM, exclusive};

const SHA256: &CStr = c"SHA2-256";

/// RFC 8448: the early secret without a pre-shared key, in sections 3 and 4.
const EARLY: &str = "33ad0a1c607ec03b09e6cd9893680ce210adf300aa1f2660e1b22e10f170f92a";

#[test]
fn the_key_schedule_of_a_full_handshake() {
    let _turn = exclusive();
    let early = extract(None, None);
    assert_eq!(early, hex(EARLY));
    let nothing = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
    check(
        EARLY,
        "derived",
        nothing,
        "6f2615a108c702c5678f54fc9dbab69716c076189c48250cebeac3576c3611ba",
    );
    let shared = hex("8bd4054fb55b9d63fdfbacf9f04b9f0d35e6d63f537563efd46272900f89492d");
    let handshake = "1dc826e93606aa6fdc0aadc12f741b01046aa6b99f691ed221a9f0ca043fbeac";
    assert_eq!(extract(Some(&early), Some(&shared)), hex(handshake));
    let master = "18df06843d13a08bf2a449844c5f8a478001bc4d4c627984d5a41da8d0402919";
    assert_eq!(extract(Some(&hex(handshake)), None), hex(master));

    let hello = "860c06edc07858ee8e78f0e7428c58edd6b43f2ca3e6e95f02ed063cf0e1cad8";
    let client = "b3eddb126e067f35a780b3abf45e2d8f3b1a950738f52e9600746a0e27a55a21";
    let server = "b67b7d690cc16c4e75e54213cb2d37b4e9c912bcded9105d42befd59d391ad38";
    check(handshake, "c hs traffic", hello, client);
    check(handshake, "s hs traffic", hello, server);
    check(client, "key", "", "dbfaa693d1762c5b666af5d950258d01");
    check(client, "iv", "", "5bd3c71b836e0b76bb73265f");
    check(server, "key", "", "3fce516009c21727d0f2e4e86ee403bc");
    check(server, "iv", "", "5d313eb2671276ee13000b30");

    let finished = "9608102a0f1ccc6db6250b7b7e417b1a000eaada3daae4777a7686c9ff83df13";
    let client = "9e40646ce79a7f9dc05af8889bce6552875afa0b06df0087f792ebb7c17504a5";
    let server = "a11af9f05531f856ad47116b45a950328204b4f44bfb6b3a4b4f1f3fcb631643";
    let exporter = "fe22f881176eda18eb8f44529e6792c50c9a3f89452f68d8ae311b4309d3cf50";
    check(master, "c ap traffic", finished, client);
    check(master, "s ap traffic", finished, server);
    check(master, "exp master", finished, exporter);
    check(client, "key", "", "17422dda596ed5d9acd890e3c63f5051");
    check(client, "iv", "", "5b78923dee08579033e523d9");
    check(server, "key", "", "9f02283b6c9c07efc26bb9f2ac92e356");
    check(server, "iv", "", "cf782b88dd83549aadf1e984");

    let end = "209145a96ee8e2a122ff810047cc952684658d6049e86429426db87c54ad143d";
    let resumption = "7df235f2031d2a051287d02b0241b0bfdaf86cc856231f2d5aba46c434ec196c";
    check(master, "res master", end, resumption);
    let ticket = "4ecd0eb6ec3b4d87f5d6028f922ca4c5851a277fd41311c9e62d2c9492e1c4f3";
    check(resumption, "resumption", "0000", ticket);
}

#[test]
fn the_key_schedule_of_a_resumed_handshake() {
    let _turn = exclusive();
    let ticket = hex("4ecd0eb6ec3b4d87f5d6028f922ca4c5851a277fd41311c9e62d2c9492e1c4f3");
    let early = "9b2188e9b2fc6d64d71dc329900e20bb41915000f678aa839cbb797cb7d8332c";
    assert_eq!(extract(None, Some(&ticket)), hex(early));
    let nothing = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
    let binder = "69fe131a3bbad5d63c64eebcc30e395b9d8107726a13d074e389dbc8a4e47256";
    check(early, "res binder", nothing, binder);
    check(
        binder,
        "finished",
        "",
        "5588673e72cb59c87d220caffe94f2dea9a3b1609f7d50e90a48227db9ed7eaa",
    );
    let hello = "08ad0fa05d7c7233b1775ba2ff9f4c5b8b59276b7f227f13a976245f5d960913";
    let traffic = "3fbbe6a60deb66c30a32795aba0eff7eaa10105586e7be5c09678d63b6caab62";
    let exporter = "b2026866610937d7423e5be90862ccf24c0e6091186d34f812089ff5be2ef7df";
    check(early, "c e traffic", hello, traffic);
    check(early, "e exp master", hello, exporter);
    check(traffic, "key", "", "920205a5b7bf2115e6fc5c2942834f54");
    check(traffic, "iv", "", "6d475f0993c8e564610db2b9");
    let shared = hex("f44194756ff9ec9d25180635d66ea6824c6ab3bf179977be37f723570e7ccb2e");
    let handshake = hex("005cb112fd8eb4ccc623bb88a07c64b3ede1605363fc7d0df8c7ce4ff0fb4ae6");
    assert_eq!(extract(Some(&hex(early)), Some(&shared)), handshake);
    let master = hex("e2d32d4ed66dd37897a0e80c84107503ce58bf8aad4cb55a5002d77ecb890ece");
    assert_eq!(extract(Some(&handshake), None), master);
}

/// RFC 5869, appendix A: the cases with SHA-256.
#[test]
fn hkdf() {
    let _turn = exclusive();
    let counting = |from, to| (from..=to).collect::<Vec<u8>>();
    let cases = [
        (
            vec![0x0b; 22],
            counting(0x00, 0x0c),
            counting(0xf0, 0xf9),
            "077709362c2e32df0ddc3f0dc47bba6390b6c73bb50f9c3122ec844ad7c2b3e5",
            "3cb25f25faacd57a90434f64d0362f2a2d2d0a90cf1a5a4c5db02d56ecc4c5bf34007208d5b887185865",
        ),
        (
            counting(0x00, 0x4f),
            counting(0x60, 0xaf),
            counting(0xb0, 0xff),
            "06a6b88c5853361a06104c9ceb35b45cef760014904671014a193f40c15fc244",
            "b11e398dc80327a1c8e7f78c596a49344f012eda2d4efad8a050cc4c19afa97c59045a99cac7827271cb41c6\
             5e590e09da3275600c2f09b8367793a9aca3db71cc30c58179ec3e87c14c01d5c1f3434f1d87",
        ),
        (
            vec![0x0b; 22],
            vec![],
            vec![],
            "19ef24a32c717b167f33a91d6f648bdf96596776afdb6377ac434c1c293ccb04",
            "8da4e775a563c18f715f802a063c5a31b8a11f5c5ee1879ec3454e5f3c738d2d9d201395faa4b61a96c8",
        ),
    ];
    for (key, salt, info, secret, output) in cases {
        let secret = hex(secret);
        let digest = text(c"digest", SHA256);
        let (salt, info) = (octets(c"salt", salt), octets(c"info", info));
        let derive = |mode_number, key: &[u8], length| {
            let settings = [
                digest.clone(),
                mode(mode_number),
                octets(c"key", key),
                salt.clone(),
                info.clone(),
            ];
            derive(c"HKDF", &settings, length)
        };
        let output = hex(output);
        assert_eq!(derive(EXTRACT_ONLY, &key, 32), secret);
        assert_eq!(derive(EXPAND_ONLY, &secret, output.len()), output);
        assert_eq!(derive(EXTRACT_AND_EXPAND, &key, output.len()), output);
    }
}

/// <https://mailarchive.ietf.org/arch/msg/tls/fzVCzk-z3FShgGJ6DOXqM1ydxms/>
#[test]
fn tls12_pseudorandom_function() {
    let _turn = exclusive();
    let cases = [
        (
            c"SHA2-256",
            "9bbe436ba940f017b17652849a71db35",
            "a0ba9f936cda311827a6f796ffd5198c",
            "e3f229ba727be17b8d122620557cd453c2aab21d07c3d495329b52d4e61edb5a6b301791e90d35c9c9a46b4e\
             14baf9af0fa022f7077def17abfd3797c0564bab4fbc91666e9def9b97fce34f796789baa48082d122ee42c5\
             a72e5a5110fff70187347b66",
        ),
        (
            c"SHA2-384",
            "b80b733d6ceefcdc71566ea48e5567df",
            "cd665cf6a8447dd6ff8b27555edb7465",
            "7b0c18e9ced410ed1804f2cfa34a336a1c14dffb4900bb5fd7942107e81c83cde9ca0faa60be9fe34f82b123\
             3c9146a0e534cb400fed2700884f9dc236f80edd8bfa961144c9e8d792eca722a7b32fc3d416d473ebc2c5fd\
             4abfdad05d9184259b5bf8cd4d90fa0d31e2dec479e4f1a26066f2eea9a69236a3e52655c9e9aee691c8f3a2\
             6854308d5eaa3be85e0990703d73e56f",
        ),
        (
            c"SHA2-512",
            "b0323523c1853599584d88568bbb05eb",
            "d4640e12e4bcdbfb437f03e6ae418ee5",
            "1261f588c798c5c201ff036e7a9cb5edcd7fe3f94c669a122a4638d7d508b283042df6789875c7147e906d86\
             8bc75c45e20eb40c1cf4a1713b27371f68432592f7dc8ea8ef223e12ea8507841311bf68653d0cfc4056d811\
             f025c45ddfa6e6fec702f054b409d6f28dd0a3233e498da41a3e75c5630eedbe22fe254e33a1b0e9f6b98266\
             75bec7d01a845658dc9c397545401d40b9f46c7a400ee1b8f81ca0a60d1a397a1028bff5d2ef50661268\
             42fb8da4197632bdb54ff6633f86bbc836e640d4d898",
        ),
    ];
    for (digest, secret, seed, output) in cases {
        let settings = [
            text(c"digest", digest),
            octets(c"secret", hex(secret)),
            octets(c"seed", "test label"),
            octets(c"seed", hex(seed)),
        ];
        let output = hex(output);
        assert_eq!(derive(c"TLS1-PRF", &settings, output.len()), output);
    }
}

/// The next secret of RFC 8446, section 7.1, as OpenSSL derives it.
fn extract(before: Option<&[u8]>, key: Option<&[u8]>) -> Vec<u8> {
    let mut settings = vec![
        mode(EXTRACT_ONLY),
        text(c"digest", SHA256),
        octets(c"prefix", "tls13 "),
        octets(c"label", "derived"),
    ];
    settings.extend(before.map(|before| octets(c"salt", before)));
    settings.extend(key.map(|key| octets(c"key", key)));
    derive(c"TLS13-KDF", &settings, 32)
}

/// HKDF-Expand-Label of RFC 8446, section 7.1.
fn check(secret: &str, label: &str, data: &str, expected: &str) {
    let expected = hex(expected);
    let mut settings = vec![
        mode(EXPAND_ONLY),
        text(c"digest", SHA256),
        octets(c"key", hex(secret)),
        octets(c"prefix", "tls13 "),
        octets(c"label", label),
    ];
    if !data.is_empty() {
        settings.push(octets(c"data", hex(data)));
    }
    let derived = derive(c"TLS13-KDF", &settings, expected.len());
    assert_eq!(derived, expected, "{label}");
}

fn derive(name: &CStr, settings: &[Setting], length: usize) -> Vec<u8> {
    let kdf = Kdf::new(name, SLIPSTREAM);
    kdf.derive(Some(settings), length).expect("a derivation")
}

fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text.bytes().filter(u8::is_ascii_hexdigit).collect();
    digits
        .chunks(2)
        .map(|pair| {
            let pair = str::from_utf8(pair).expect("ASCII");
            u8::from_str_radix(pair, 16).expect("two digits")
        })
        .collect()
}
