//! Messages about wrong directives.

use slipstream_integration::{Build, Configuration, Nginx, each_build};

each_build!(errors_name_the_directive, every_directive_is_accepted);

fn errors_name_the_directive(build: Build) {
    for directives in [
        "slipstream_gzip yes;",
        "slipstream_gzip on off;",
        "slipstream_gzip on; slipstream_gzip on;",
        "slipstream_gzip_comp_level 0;",
        "slipstream_gzip_comp_level 10;",
        "slipstream_gzip_comp_level fast;",
        "slipstream_zstd_comp_level 0;",
        "slipstream_zstd_comp_level 20;",
        "slipstream_gzip_chunk_size 0;",
        "slipstream_gzip_chunk_size 1;",
        "slipstream_gzip_chunk_size 64m;",
        "slipstream_gzip_chunk_size large;",
        "slipstream_gzip_chunk_size 64k; slipstream_gzip_chunk_size 64k;",
        "slipstream_gzip_chunk_size 64k; slipstream_gzip_stream_size 32k;",
        "slipstream_gzip_stream_size 0;",
        "slipstream_gzip_stream_size 100g;",
        "slipstream_gzip_sw_threshold -1;",
        "slipstream_gzip_sw_threshold;",
        "slipstream_gzip_offload hardware;",
        "slipstream_gzip_offload;",
        "slipstream_gzip_mode synchronous;",
        "slipstream_gzip_codings br;",
        "slipstream_gzip_codings gzip gzip;",
        "slipstream_gzip_codings;",
        "slipstream_gzip_http_version 2;",
        "slipstream_gzip_proxied sometimes;",
        "slipstream_gzip_vary maybe;",
        "slipstream_gzip_buffers 0 4k;",
        "slipstream_gzip_buffers 4;",
        "slipstream_gzip_min_length short;",
        "slipstream_gzip_disable \"(\";",
    ] {
        let configuration = Configuration::new().http(directives);
        let (accepted, messages) = Nginx::test(build, &configuration);
        assert!(!accepted, "{directives}");
        let line = messages
            .lines()
            .find(|line| line.contains("[emerg]"))
            .unwrap_or_else(|| panic!("{directives}: {messages}"));
        // Of those that contradict each other either may be named; for some, nginx names the value.
        let is_named = directives
            .split(';')
            .filter_map(|directive| directive.split_whitespace().next())
            .any(|name| line.contains(&format!("\"{name}\"")))
            || directives.contains('(') && line.contains("\"(\"")
            // nginx's own words for numbers out of range, and for unknown ones.
            || line.contains("value must be ")
            || line.contains("invalid value \"");
        assert!(is_named, "{directives}: {line}");
        assert!(line.contains("nginx.conf:"), "{directives}: {line}");
    }
}

fn every_directive_is_accepted(build: Build) {
    const ALL: &str = "
        slipstream_gzip on;
        slipstream_gzip_types text/css application/json;
        slipstream_gzip_min_length 100;
        slipstream_gzip_comp_level 9;
        slipstream_gzip_buffers 8 8k;
        slipstream_gzip_http_version 1.0;
        slipstream_gzip_proxied expired no-cache no-store private no_last_modified no_etag auth;
        slipstream_gzip_vary on;
        slipstream_gzip_disable msie6 Bad.*Browser;
        slipstream_gzip_chunk_size 32k;
        slipstream_gzip_stream_size 128k;
        slipstream_gzip_sw_threshold 100k;
        slipstream_gzip_offload device;
        slipstream_gzip_mode pipelined;
        slipstream_gzip_codings zstd gzip;
        slipstream_zstd_comp_level 19;";
    let server = format!("{ALL} location / {{ {ALL} }}");
    let configuration = Configuration::new()
        .http(ALL)
        .server("127.0.0.1:8080", &[], server);
    let (accepted, messages) = Nginx::test(build, &configuration);
    assert!(accepted, "{messages}");
}
