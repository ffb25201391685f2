//! Reproductions of papers about accelerated TLS and compression, with an engine in software
//! instead of their cards.
//!
//! - [`qtls`]: "QTLS: High-Performance TLS Asynchronous Offload Framework with Intel QuickAssist
//!   Technology" (Hu et al., PPoPP 2019), figures 7 to 9, 11 and 12.
//! - [`qweb`]: "QWEB: High-Performance Event-Driven Web Architecture with QAT Acceleration",
//!   figures 12 to 14.
//! - [`squid`]: "QuickAssist Technology Acceleration Quadruples Squid Web Cache Server Performance"
//!   (Silicom, 2016), table 2.
//!
//! Each module runs an experiment and puts its ratios beside the paper's. The statements of a paper
//! are in its module `paper`. [`claim`], [`overview`] and [`report`] are common to all: claims
//! beside measurements, the text on standard output, and the files of `--out`.
//!
//! The load generator, statistics, tables and charts are those of `slipstream-bench`; servers are
//! started by `slipstream-testbed`. Nothing of the product depends on this crate.

pub mod claim;
pub mod overview;
pub mod qtls;
pub mod qweb;
pub mod report;
pub mod squid;

pub use slipstream_bench::Error;

#[cfg(test)]
mod testing {
    /// The texts of a plot, which has to be well formed.
    pub(crate) fn texts(svg: &str) -> Vec<String> {
        roxmltree::Document::parse(svg)
            .unwrap()
            .descendants()
            .filter(|node| node.has_tag_name("text"))
            .filter_map(|node| node.text().map(|text| text.trim().to_owned()))
            .collect()
    }

    /// Checks that a report is well-formed XML without scripts and links; the number of its plots.
    pub(crate) fn plots_of(html: &str) -> usize {
        let options = roxmltree::ParsingOptions {
            allow_dtd: true,
            ..Default::default()
        };
        let page = roxmltree::Document::parse_with_options(html, options).unwrap();
        let count = |name| {
            page.descendants()
                .filter(|node| node.tag_name().name() == name)
                .count()
        };
        assert_eq!(count("script"), 0);
        for attribute in ["src=", "href=", "url("] {
            assert!(!html.contains(attribute), "{attribute}");
        }
        count("svg")
    }
}
