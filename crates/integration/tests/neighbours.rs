//! Directives and modules of others that take part in handshakes, on fibers.

use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use openssl::ssl::SslVersion;
use slipstream_integration::programs::{self, finish};
use slipstream_integration::{
    Authority, Build, Client, Configuration, Credentials, KeyType, Nginx, Offer, Responder,
    concurrently, each_build, eventually, unused_address,
};

each_build!(
    stapled_answers,
    revocation_lists,
    ticket_keys_outlive_a_reload,
    commands_of_openssl,
);

const CONNECTIONS: usize = 16;

/// nginx asks the responder in the middle of the first handshake, hence on its fiber.
fn stapled_answers(build: Build) {
    let authority = Authority::new();
    let address = unused_address();
    let credentials = authority.issue(KeyType::Rsa(2048), &["localhost"]);
    let responder = Responder::start(&authority, &[(&credentials, 'V')]);
    let nginx = start(
        build,
        address,
        &credentials,
        &format!(
            "ssl_stapling on; ssl_stapling_verify on; ssl_stapling_responder http://{}/;
             ssl_trusted_certificate {};",
            responder.address(),
            authority.certificate_file().display()
        ),
    );
    for version in ["-tls1_2", "-tls1_3"] {
        eventually("an answer is stapled", || {
            let target = address.to_string();
            let arguments = ["s_client", "-status", version, "-connect", &target];
            let finished = programs::run("openssl", arguments);
            finished.output.contains("Cert Status: good")
        });
    }
    let before = nginx.settled().lane_operations();
    let offer = Offer::tls13()
        .name("localhost")
        .roots(authority.certificate());
    expect_service(address, &offer);
    let metrics = nginx.settled();
    assert_eq!(metrics.lane_operations(), before + CONNECTIONS as u64);
    assert_eq!(metrics.all_software_operations(), 0, "{metrics:#?}");
}

fn revocation_lists(build: Build) {
    let authority = Authority::new();
    let address = unused_address();
    let good = authority.issue(KeyType::EcdsaP256, &["good.test"]);
    let revoked = authority.issue(KeyType::EcdsaP256, &["revoked.test"]);
    let list = revocation_list(&authority, &[(&good, 'V'), (&revoked, 'R')]);
    let nginx = start(
        build,
        address,
        &authority.issue(KeyType::Rsa(2048), &["localhost"]),
        &format!(
            "ssl_verify_client on; ssl_client_certificate {}; ssl_crl {list};",
            authority.certificate_file().display()
        ),
    );
    for offer in [Offer::tls13(), Offer::tls12(), Offer::rsa_key_exchange()] {
        concurrently(CONNECTIONS, |number| {
            let (credentials, status) = [(&good, 200), (&revoked, 400)][number % 2];
            let client = Client::new(address, &offer.clone().credentials(credentials));
            assert_eq!(client.get("/").unwrap().status, status);
        });
    }
    let metrics = nginx.settled();
    assert_eq!(
        metrics.lane_operations(),
        3 * CONNECTIONS as u64,
        "{metrics:#?}"
    );
    assert_eq!(metrics.all_software_operations(), 0, "{metrics:#?}");
}

fn ticket_keys_outlive_a_reload(build: Build) {
    let authority = Authority::new();
    let address = unused_address();
    let credentials = authority.issue(KeyType::Rsa(2048), &["localhost"]);
    let mut random = slipstream_integration::Random::of_this_run();
    let key = authority.write("ticket.key", &random.bytes(80));
    let directives = format!(
        "ssl_session_ticket_key {}; ssl_session_cache off;",
        key.display()
    );
    let configuration = configuration(address, &credentials, &directives);
    let mut nginx = Nginx::start(build, &configuration);
    for offer in [Offer::tls13(), Offer::tls12(), Offer::rsa_key_exchange()] {
        let client = Client::new(address, &offer);
        assert_eq!(client.get("/").unwrap().text(), "served");
        let session = client.session();
        let old = nginx.reload(&configuration);
        eventually("old workers exit", || {
            !nginx.workers().iter().any(|worker| old.contains(worker))
        });
        let before = nginx.settled().lane_operations();
        let mut resumed = session.connect().unwrap();
        assert!(resumed.is_resumed());
        assert_eq!(resumed.get("/").unwrap().text(), "served");
        assert_eq!(nginx.settled().lane_operations(), before);
    }
}

fn commands_of_openssl(build: Build) {
    let authority = Authority::new();
    let address = unused_address();
    let nginx = start(
        build,
        address,
        &authority.issue(KeyType::Rsa(2048), &["localhost"]),
        "ssl_conf_command Ciphersuites TLS_CHACHA20_POLY1305_SHA256;
         ssl_conf_command Options -SessionTicket,ServerPreference;
         ssl_conf_command Groups P-256;",
    );
    let client = Client::new(address, &Offer::tls13());
    let mut connection = client.connect().unwrap();
    assert_eq!(connection.version(), SslVersion::TLS1_3);
    let cipher = connection.stream().ssl().current_cipher().unwrap().name();
    assert_eq!(cipher, "TLS_CHACHA20_POLY1305_SHA256");
    let group = connection.temporary_key().unwrap().id();
    assert_eq!(group, openssl::pkey::Id::EC);
    expect_service(address, &Offer::tls13());
    let metrics = nginx.settled();
    assert_eq!(
        metrics.lane_operations(),
        1 + CONNECTIONS as u64,
        "{metrics:#?}"
    );
    assert_eq!(metrics.all_software_operations(), 0, "{metrics:#?}");
}

/// Lua chooses the certificate in the middle of the handshake: first on the fiber, then, when it
/// goes on after a wait, on the main stack. Only Debian has the module ready to be loaded.
#[test]
fn certificates_chosen_by_lua() {
    let authority = Authority::new();
    let address = unused_address();
    for name in ["one.test", "two.test"] {
        let credentials = authority.issue_for(&KeyType::Rsa(2048).generate(), &[name]);
        for (file, extension) in [
            (&credentials.certificate_file, "crt"),
            (&credentials.key_file, "key"),
        ] {
            let readable = authority.directory().join(format!("{name}.{extension}"));
            fs::copy(file, &readable).unwrap();
            fs::set_permissions(&readable, fs::Permissions::from_mode(0o644)).unwrap();
        }
    }
    // Workers read these files, and they run as another user if nginx runs as root.
    fs::set_permissions(authority.directory(), fs::Permissions::from_mode(0o711)).unwrap();
    let folder = authority.directory().display();
    let lua = format!(
        "ssl_certificate_by_lua_block {{
             local ssl = require \"ngx.ssl\"
             local name = assert(ssl.server_name())
             if name == \"two.test\" then ngx.sleep(0.001) end
             local function read(extension)
                 local file = assert(io.open(\"{folder}/\" .. name .. extension, \"rb\"))
                 local content = file:read(\"*a\")
                 file:close()
                 return content
             end
             assert(ssl.clear_certs())
             assert(ssl.set_cert(assert(ssl.parse_pem_cert(read(\".crt\")))))
             assert(ssl.set_priv_key(assert(ssl.parse_pem_priv_key(read(\".key\")))))
         }}
         location = /lua {{ content_by_lua_block {{
             ngx.sleep(0.001) ngx.header.content_length = 3 ngx.print(\"lua\") }} }}"
    );
    let fallback = authority.issue(KeyType::EcdsaP256, &["fallback.test"]);
    let configuration = configuration(address, &fallback, &lua)
        .events("multi_accept on;")
        .main("load_module /usr/lib/nginx/modules/ndk_http_module.so;")
        .main("load_module /usr/lib/nginx/modules/ngx_http_lua_module.so;");
    let nginx = Nginx::start(Build::Distribution, &configuration);
    for offer in [Offer::tls13(), Offer::tls12(), Offer::rsa_key_exchange()] {
        concurrently(32, |number| {
            let name = ["one.test", "two.test"][number % 2];
            let offer = offer.clone().name(name).roots(authority.certificate());
            let mut connection = Client::new(address, &offer).connect().unwrap();
            assert_eq!(connection.get("/lua").unwrap().text(), "lua");
        });
    }
    let metrics = nginx.settled();
    assert_eq!(metrics.handshakes(), 96, "{metrics:#?}");
    assert_eq!(metrics.lane_operations(), 96, "{metrics:#?}");
    assert_eq!(metrics.all_software_operations(), 0, "{metrics:#?}");
}

fn start(build: Build, address: SocketAddr, credentials: &Credentials, directives: &str) -> Nginx {
    Nginx::start(build, &configuration(address, credentials, directives))
}

fn configuration(
    address: SocketAddr,
    credentials: &Credentials,
    directives: &str,
) -> Configuration {
    let directives = format!("{directives} location / {{ return 200 served; }}");
    Configuration::new().server(format!("{address} ssl"), &[credentials], directives)
}

fn expect_service(address: SocketAddr, offer: &Offer) {
    let client = Client::new(address, offer);
    concurrently(CONNECTIONS, |_| {
        assert_eq!(client.get("/").unwrap().text(), "served");
    });
}

/// Returns the path of a list in which the authority revokes what has the status R.
fn revocation_list(authority: &Authority, certificates: &[(&Credentials, char)]) -> String {
    let index = authority.index(certificates);
    let settings = format!(
        "[ca]\ndefault_ca = it\n[it]\ndatabase = {}\ndefault_md = sha256\ndefault_crl_days = 1\n",
        index.display()
    );
    let list = authority.write("list.pem", b"");
    let mut command = Command::new("openssl");
    command.args(["ca", "-gencrl", "-config"]);
    command.arg(authority.write("ca.cnf", settings.as_bytes()));
    command.arg("-cert").arg(authority.certificate_file());
    command.arg("-keyfile").arg(authority.key_file());
    finish(command.arg("-out").arg(&list), b"").expect_success();
    list.display().to_string()
}
