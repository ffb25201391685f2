//! Every configuration in a document, and every example, is one that its program takes.

use slipstream_integration::{Build, each_build};

use crate::pages::{Block, blocks, example};
use crate::stage::Stage;

each_build!(nginx_takes_the_configurations_of_documents);

fn nginx_takes_the_configurations_of_documents(build: Build) {
    let stage = Stage::new();
    expect_all("nginx", "nginx.conf", |block| {
        stage.nginx(build, &block.text)
    });
}

#[test]
fn serve_takes_the_configurations_of_documents() {
    let stage = Stage::new();
    expect_all("toml", "serve.toml", |block| stage.serve(&block.text));
}

#[test]
fn haproxy_takes_the_configurations_of_documents() {
    let stage = Stage::new();
    expect_all("haproxy", "haproxy.cfg", |block| stage.haproxy(&block.text));
}

#[test]
fn openssl_takes_the_configurations_of_documents() {
    let stage = Stage::new();
    expect_all("ini", "openssl.cnf", |block| stage.openssl(&block.text));
}

/// The section of the first README: OpenSSL loads no provider with it.
#[test]
fn a_section_called_default_is_found() {
    let text = example("openssl.cnf").text;
    let broken = text.replace("default_sect", "default");
    assert_ne!(text, broken);
    let error = Stage::new().openssl(&broken).unwrap_err();
    assert!(error.contains("is not loaded"), "{error}");
}

#[test]
fn a_mistake_in_a_document_is_found() {
    let stage = Stage::new();
    let nginx = stage.nginx(Build::Distribution, "slipstream_gzip perhaps;");
    assert!(nginx.unwrap_err().contains("invalid value \"perhaps\""));
    let serve = stage.serve("backend = \"127.0.0.1:8080\"");
    assert!(serve.unwrap_err().contains("unknown key \"backend\""));
    assert!(stage.haproxy("global\n    ssl-provider none\n").is_err());
}

/// Checks all blocks of a language and an example, and says what is wrong with each.
fn expect_all(language: &str, name: &str, check: impl Fn(&Block) -> Result<(), String>) {
    let mut all = blocks(language);
    all.push(example(name));
    let problems: Vec<String> = all
        .iter()
        .filter_map(|block| {
            let error = check(block).err()?;
            Some(format!("{}:\n{error}", block.place))
        })
        .collect();
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}
