//! The generated code is that of the protocol's description. `UPDATE_GENERATED=1` writes it anew.

use std::path::Path;

#[test]
fn generated_code_is_up_to_date() {
    if std::process::Command::new("protoc").arg("--version").output().is_err() {
        eprintln!("skipped: no protoc here (package protobuf-compiler)");
        return;
    }
    let made = tempfile::tempdir().unwrap();
    tonic_prost_build::configure()
        .out_dir(made.path())
        .emit_rerun_if_changed(false)
        .generate_default_stubs(false)
        .compile_protos(&["proto/v1beta1.proto"], &["proto"])
        .unwrap();
    let made = std::fs::read_to_string(made.path().join("v1beta1.rs")).unwrap();
    let kept = Path::new("src/generated/v1beta1.rs");
    if std::env::var_os("UPDATE_GENERATED").is_some() {
        std::fs::write(kept, made).unwrap();
        return;
    }
    assert!(
        std::fs::read_to_string(kept).unwrap() == made,
        "UPDATE_GENERATED=1 cargo test -p garboard-node --test generated"
    );
}
