//! Linker options of the module.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    // OpenSSL unloads providers, but threads that have used this one keep destructors of their
    // thread-local instances in it.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
}
