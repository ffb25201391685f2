//! Figures of QTLS with a stock nginx.

use std::path::PathBuf;
use std::time::Duration;

use slipstream_testbed::nginx::Binary;
use slipstream_testbed::processor::usable_cores;

use slipstream_papers::qtls::{Configuration as Offloading, Device, Experiment, Figure};

#[test]
fn figure_9_can_be_measured_with_a_stock_nginx_alone() {
    let cores = usable_cores().unwrap();
    let outcome = Experiment {
        nginx: Binary::find(None).unwrap(),
        module: None,
        engine_program: PathBuf::from("/nonexistent/slipstream"),
        device: Device::Paced,
        figures: vec![Figure::Resumption],
        configurations: vec![Offloading::Software],
        concurrency: 8,
        // A processor may be busy elsewhere for a while.
        window: Duration::from_secs(1),
        rounds: 2,
        server_core: cores[0],
        load_core: cores[cores.len() - 1],
    }
    .run(|_| ())
    .unwrap();
    assert_eq!(outcome.errors(), 0, "{outcome}");
    assert_eq!(outcome.rows.len(), 2 * 3);
    for row in &outcome.rows {
        let handshakes = row.handshakes as f64;
        let asked = handshakes * f64::from(row.resumed_percent) / 100.0;
        // Which of those that were under way when the window began and ended belong to it is up to
        // the scheduler.
        let at_the_edges = 2.0 * row.concurrency as f64 + 1.0;
        let tolerated = (0.05 * handshakes).max(at_the_edges);
        assert!((row.resumed as f64 - asked).abs() < tolerated, "{row:?}");
        assert!(row.server_cpu_us > 0.0 && row.mean_us > 0.0, "{row:?}");
        assert!(row.engine_share.is_none(), "{row:?}");
    }
    for line in &outcome.summary {
        assert_eq!(line.handshakes_ratio.unwrap().median, 1.0);
    }
}

#[test]
fn offloading_needs_a_module() {
    let cores = usable_cores().unwrap();
    let error = Experiment {
        nginx: Binary::find(None).unwrap(),
        module: None,
        engine_program: PathBuf::from("/nonexistent/slipstream"),
        device: Device::Paced,
        figures: vec![Figure::FullHandshakes],
        configurations: Offloading::ALL.to_vec(),
        concurrency: 8,
        window: Duration::from_millis(10),
        rounds: 1,
        server_core: cores[0],
        load_core: cores[0],
    }
    .run(|_| ())
    .unwrap_err();
    assert!(error.to_string().contains("make build"), "{error}");
}
