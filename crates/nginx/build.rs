//! nginx unloads a module on reload when the new configuration does not name it, while handshakes
//! of old workers may still run in it, and while OpenSSL holds the provider that is part of it.

fn main() {
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
}
