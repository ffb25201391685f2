//! Link arguments, and the parts of nginx that its headers have.

use std::env;
use std::fs;

fn main() {
    // nginx unloads a module on reload when the new configuration does not name it, while
    // handshakes of old workers may still run in it, and while OpenSSL holds the provider that is
    // part of it.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");

    println!("cargo:rustc-check-cfg=cfg(stream, stream_ssl_srv_conf)");
    // nginx-sys makes bindings of stream if the source tree was configured with it.
    let features = env::var("DEP_NGINX_FEATURES").unwrap_or_default();
    if features.split(',').any(|feature| feature == "stream_ssl") {
        println!("cargo:rustc-cfg=stream");
        if stream_ssl_header().contains("ngx_stream_ssl_srv_conf_t") {
            println!("cargo:rustc-cfg=stream_ssl_srv_conf");
        }
    }
}

/// Later versions of nginx have renamed the configuration of stream's TLS servers.
fn stream_ssl_header() -> String {
    let folders = env::var_os("DEP_NGINX_INCLUDE").unwrap_or_default();
    env::split_paths(&folders)
        .find_map(|folder| fs::read_to_string(folder.join("ngx_stream_ssl_module.h")).ok())
        .expect("nginx was configured with stream_ssl, so its header is in an include folder")
}
