//! What is shipped contains a panic: the profile that node agent and controller are built with unwinds.

const MANIFEST: &str = include_str!("../../Cargo.toml");
const IMAGES: &str = include_str!("../../deploy/images/build");

#[test]
fn images_of_services_are_built_with_a_profile_that_unwinds() {
    let profile = MANIFEST.split("[profile.service]").nth(1).and_then(|rest| rest.split("[profile").next()).unwrap();
    assert!(profile.contains("panic = \"unwind\""), "{profile}");
    assert!(IMAGES.contains("build_programs service \"${crates[@]}\""));
}
