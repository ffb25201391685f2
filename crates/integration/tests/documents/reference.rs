//! The reference holds every directive, key, command, option and metric, and none that does not
//! exist.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::process::Command;

use slipstream_integration::programs::run;
use slipstream_integration::{
    Authority, Build, Configuration, Engine, KeyType, Nginx, Terminator, TerminatorConfiguration,
    command, unused_address,
};

use crate::pages::{Entry, code, entries, tables};
use crate::stage::{Stage, sources};

/// The build that the reference describes; the directives of all builds are the same.
const BUILD: Build = Build::Distribution;

/// A name that no program knows, and that is like none that it knows.
const UNKNOWN: &str = "zzzzzzzz";

/// The context of directives of the block.
const BLOCK: &str = "slipstream";

#[test]
fn every_directive_of_the_block() {
    let answer = Stage::new().nginx_file(BUILD, &format!("slipstream {{ {UNKNOWN} 1; }}"));
    let (_, known) = answer
        .errors
        .split_once("in slipstream block: ")
        .expect("nginx says which it knows");
    let (known, _) = known.split_once(" are known").expect("the end of the list");
    let documented = directives().into_iter().filter(is_of_block);
    assert_eq!(
        documented.map(|entry| entry.name).collect::<BTreeSet<_>>(),
        known.split(", ").map(str::to_owned).collect()
    );
}

#[test]
fn every_directive_and_variable_of_http() {
    // nginx does not tell what a module knows, but the module names it to nginx as C does.
    let mut known = BTreeSet::new();
    for source in sources("nginx") {
        let text = fs::read_to_string(&source).expect("a source is text");
        for (_, rest) in text
            .match_indices("\"slipstream")
            .map(|(at, _)| text.split_at(at + 1))
        {
            let is_part = |character: char| character.is_ascii_lowercase() || character == '_';
            let end = rest.find(|character| !is_part(character));
            let (name, rest) = rest.split_at(end.expect("a string ends"));
            if rest.starts_with("\\0\"") {
                known.insert(name.to_owned());
            }
        }
    }
    let documented = directives().into_iter().filter(|entry| !is_of_block(entry));
    let documented = documented.map(|entry| entry.name.trim_start_matches('$').to_owned());
    assert_eq!(documented.collect::<BTreeSet<_>>(), known);
}

#[test]
fn documented_defaults_of_nginx_are_values() {
    let stage = Stage::new();
    let device = format!("device unix:{};", stage.socket());
    let default = |entry: Entry| entry.default;
    let block = directives().into_iter().filter(is_of_block);
    // Some mean nothing without a device, and the default of one depends on it.
    let block: Vec<String> = block
        .filter_map(|entry| match entry.name.as_str() {
            "device" => Some(device.clone()),
            _ => default(entry),
        })
        .collect();
    let http = directives().into_iter().filter(|entry| !is_of_block(entry));
    let http: Vec<String> = http.filter_map(default).collect();
    assert!(block.len() > 10 && http.len() > 10, "{block:?} {http:?}");
    let text = format!(
        "slipstream {{ {} }}\nhttp {{ {} }}",
        block.join("\n"),
        http.join("\n")
    );
    let answer = stage.nginx_file(BUILD, &text);
    assert!(answer.success, "{}", answer.errors);
}

#[test]
fn every_key_of_serve() {
    let listener = "[[listener]]\nlisten = \"127.0.0.1:44444\"\n";
    let whole = format!(
        "{listener}certificates = {{ certificate = \"a\", key = \"b\" }}\nbackends = \"http://[::1]:80\"\n"
    );
    let of_certificates = format!("{listener}certificates = {{ {UNKNOWN} = 1 }}");
    let stage = Stage::new();
    let mut known = BTreeSet::new();
    for (section, text) in [
        ("", format!("{UNKNOWN} = 1")),
        ("engine.", format!("[engine]\n{UNKNOWN} = 1")),
        ("metrics.", format!("[metrics]\n{UNKNOWN} = 1")),
        ("access_log.", format!("[access_log]\n{UNKNOWN} = 1")),
        ("limits.", format!("[limits]\n{UNKNOWN} = 1")),
        ("listener.", format!("[[listener]]\n{UNKNOWN} = 1")),
        ("listener.certificates.", of_certificates),
        (
            "listener.client_certificates.",
            format!("{whole}client_certificates = {{ {UNKNOWN} = 1 }}"),
        ),
        (
            "listener.health.",
            format!("{whole}health = {{ {UNKNOWN} = 1 }}"),
        ),
    ] {
        let answer = stage.serve_file(&text).output;
        let (_, keys) = answer
            .split_once("known here are ")
            .unwrap_or_else(|| panic!("{section} is not refused: {answer}"));
        let keys = keys.trim().split(", ");
        known.extend(keys.map(|key| format!("{section}{key}")));
    }
    // Sections are headings of another level.
    for section in ["engine", "metrics", "access_log", "limits", "listener"] {
        assert!(known.remove(section), "{section}");
    }
    let documented = entries("serve.md").into_iter().map(|entry| entry.name);
    assert_eq!(documented.collect::<BTreeSet<_>>(), known);
}

#[test]
fn documented_defaults_of_serve_are_values() {
    let mut sections: BTreeMap<String, String> = BTreeMap::new();
    for Entry { name, default, .. } in entries("serve.md") {
        let (section, _) = name.rsplit_once('.').unwrap_or_default();
        if let Some(default) = default {
            let text = sections.entry(section.to_owned()).or_default();
            text.push_str(&default);
            text.push('\n');
        }
    }
    // It can be given for requests only.
    let of_backends = "backends = \"http://127.0.0.1:8080\"\n";
    let text = format!(
        "{}[engine]\n{}[access_log]\npath = \"-\"\n{}[limits]\n{}",
        sections[""], sections["engine"], sections["access_log"], sections["limits"],
    );
    let stage = Stage::new();
    stage.serve(&text).unwrap_or_else(|error| panic!("{error}"));
    let listener = format!("{of_backends}{}", sections["listener"]);
    stage
        .serve(&listener)
        .unwrap_or_else(|error| panic!("{error}"));
}

#[test]
fn every_metric_of_nginx() {
    let nginx = Nginx::start(BUILD, &Configuration::new());
    let page = nginx.status_page("GET").expect("the status page answers");
    expect_metrics("nginx", page.text());
}

#[test]
fn every_metric_of_serve() {
    let authority = Authority::new();
    let credentials = authority.issue(KeyType::EcdsaP256, &["localhost"]);
    let backends = "backends = [\"127.0.0.1:1\"]";
    let configuration =
        TerminatorConfiguration::new().listener(unused_address(), &[&credentials], backends);
    let page = Terminator::start(&configuration).page("/metrics");
    expect_metrics("slipstream serve", page.text());
}

#[test]
fn every_figure_of_an_engine() {
    let stage = Stage::new();
    let socket = stage.socket();
    let status = run_slipstream(&["engine", "status", "--json", "--socket", &socket]);
    let status: serde_json::Value = serde_json::from_str(&status).expect("JSON");
    let known = status.as_object().expect("an object").keys().cloned();
    let documented = section("metrics.md", "slipstream engine");
    let documented = documented.iter().flat_map(|row| code(&row[0]));
    assert_eq!(
        documented.collect::<BTreeSet<_>>(),
        known.collect::<BTreeSet<_>>()
    );
}

#[test]
fn every_metric_of_an_engine() {
    let engine = Engine::start(&[]);
    let output = Command::new(command())
        .args(["status", "--prometheus"])
        .env("SLIPSTREAM_RUN", engine.run())
        .output()
        .expect("the command that `make test` builds");
    let page = String::from_utf8(output.stdout).expect("text");
    let families = page.lines().filter_map(|line| line.strip_prefix("# TYPE "));
    let families = families.filter_map(|family| Some(family.split_once(' ')?.0.to_owned()));
    let documented = section("metrics.md", "slipstream status");
    let documented = documented.iter().flat_map(|row| code(&row[0]));
    // nginx and serve have pages of their own.
    let is_engines = |name: &String| {
        let of_all = ["slipstream_processes", "slipstream_unreadable_processes"];
        name.starts_with("slipstream_engine_") || of_all.contains(&name.as_str())
    };
    assert_eq!(
        documented.filter(is_engines).collect::<BTreeSet<_>>(),
        families.collect::<BTreeSet<_>>()
    );
}

#[test]
fn every_command_and_option() {
    let mut known = BTreeMap::new();
    add_commands(&mut vec!["slipstream".to_owned()], &mut known);
    let documented: BTreeMap<String, BTreeSet<String>> = tables("commands.md")
        .into_iter()
        .filter(|(title, _)| title.starts_with("slipstream "))
        .map(|(title, rows)| (title, options(rows.iter().map(|row| row[0].as_str()))))
        .collect();
    assert_eq!(documented, known);
}

/// The options of `command` and of the commands below it. One that does nothing by itself is left
/// out.
fn add_commands(command: &mut Vec<String>, known: &mut BTreeMap<String, BTreeSet<String>>) {
    let mut arguments: Vec<&str> = command[1..].iter().map(String::as_str).collect();
    arguments.push("--help");
    let help = run_slipstream(&arguments);
    let (_, commands) = help.split_once("\nCommands:\n").unwrap_or_default();
    let (commands, _) = commands.split_once("\n\n").unwrap_or((commands, ""));
    let (_, given) = help
        .split_once("\nOptions:\n")
        .expect("every command has options");
    let (given, _) = given.split_once("\nExamples:\n").unwrap_or((given, ""));
    // The help of clap has an option at the beginning of a line, with a short one before it or not.
    let lines = given.lines().map(str::trim_start);
    let mut of_command = options(lines.map(|line| line.split(", ").last().unwrap_or(line)));
    for everywhere in ["--help", "--version"] {
        of_command.remove(everywhere);
    }
    if commands.is_empty() || !of_command.is_empty() {
        known.insert(command.join(" "), of_command);
    }
    for line in commands.lines() {
        match line.split_whitespace().next() {
            None | Some("help") => {}
            Some(name) => {
                command.push(name.to_owned());
                add_commands(command, known);
                command.pop();
            }
        }
    }
}

/// The options that lines or cells begin with.
fn options<'a>(lines: impl Iterator<Item = &'a str>) -> BTreeSet<String> {
    lines
        .map(|line| line.trim_start_matches('`'))
        .filter(|line| line.starts_with("--"))
        .map(|line| {
            let is_part = |character: char| character.is_ascii_lowercase() || character == '-';
            let end = line.find(|character| !is_part(character));
            line[..end.unwrap_or(line.len())].to_owned()
        })
        .collect()
}

/// Compares the metrics of a page in Prometheus' format, with their labels, with a section of the
/// reference.
fn expect_metrics(title: &str, page: &str) {
    let mut known: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for line in page.lines() {
        if let Some(family) = line.strip_prefix("# TYPE ") {
            let (name, kind) = family.split_once(' ').expect("a name and a type");
            let expected = match name {
                _ if name.ends_with("_total") => "counter",
                _ if name.ends_with("_seconds") || name.ends_with("_batch_size") => "histogram",
                _ => "gauge",
            };
            assert_eq!(kind, expected, "{name}");
            known.entry(name.to_owned()).or_default();
        } else if let Some((name, rest)) = line.split_once('{') {
            let (label, _) = rest.split_once('=').expect("a label has a value");
            let parts = ["_bucket", "_sum", "_count"].iter();
            let whole = parts.filter_map(|part| name.strip_suffix(part));
            let name = whole.chain([name]).find(|name| known.contains_key(*name));
            let labels = known.get_mut(name.expect("its type was there before"));
            // The bound of a bucket belongs to every histogram.
            if label != "le" {
                labels.expect("just found").insert(label.to_owned());
            }
        }
    }
    let documented = section("metrics.md", title);
    let documented: BTreeMap<String, BTreeSet<String>> = documented
        .iter()
        .filter_map(|row| {
            let name = code(&row[0]).pop()?;
            Some((name, code(&row[1]).into_iter().collect()))
        })
        .collect();
    assert_eq!(documented, known);
}

fn directives() -> Vec<Entry> {
    let mut all = entries("nginx.md");
    all.extend(entries("research.md"));
    all
}

fn is_of_block(entry: &Entry) -> bool {
    entry.context.starts_with(BLOCK)
}

fn section(page: &str, title: &str) -> Vec<Vec<String>> {
    let mut sections = tables(page).into_iter();
    let found = sections.find(|(found, _)| found == title);
    found.unwrap_or_else(|| panic!("no {title} in {page}")).1
}

fn run_slipstream(arguments: &[&str]) -> String {
    let command = command();
    let program = command.to_str().expect("paths of tests are text");
    run(program, arguments).expect_success()
}
