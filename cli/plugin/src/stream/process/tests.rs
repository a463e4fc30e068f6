//! Proxies that a script plays, which prints how it was called.

use std::path::Path;
use std::process::Command;

use super::*;
use crate::exit::code_of;

const PATH: &str = "/apis/subresources.kubevirt.io/v1/namespaces/n/virtualmachineinstances/web.prod/console";

/// Says where it serves, as kubectl does, writes down its arguments and its process, and goes on.
fn goes_on(directory: &Path, address: &str) -> Kubectl {
    let seen = directory.join("seen");
    let script = format!(
        "for one; do echo \"$one\"; done >'{0}'\necho $$ >>'{0}'\necho 'Starting to serve on {address}'\nexec sleep 1000",
        seen.display()
    );
    Kubectl::played(directory, &script)
}

fn seen(directory: &Path) -> Vec<String> {
    std::fs::read_to_string(directory.join("seen")).unwrap().lines().map(str::to_owned).collect()
}

fn lives(process: &str) -> bool {
    Command::new("kill").args(["-0", process]).stderr(Stdio::null()).status().unwrap().success()
}

#[test]
fn a_proxy_serves_one_path_at_a_socket_of_its_user_and_ends_with_the_command() {
    use std::os::unix::fs::PermissionsExt;
    let directory = tempfile::tempdir().unwrap();
    let proxy = Proxy::start(&goes_on(directory.path(), "x"), &Bounds::of_stream(PATH)).unwrap();
    let Place::Socket(socket) = &proxy.place else { panic!("{:?}", proxy.place) };
    let private = socket.parent().unwrap().to_owned();
    assert_eq!(std::fs::metadata(&private).unwrap().permissions().mode() & 0o777, 0o700);
    let mut seen = seen(directory.path());
    let process = seen.pop().unwrap();
    let expected = [
        "proxy".to_owned(),
        format!("--unix-socket={}", socket.display()),
        r"--accept-paths=^/apis/subresources\.kubevirt\.io/v1/namespaces/n/virtualmachineinstances/web\.prod/console$"
            .to_owned(),
        "--reject-methods=^(POST|PUT|PATCH|DELETE)$".to_owned(),
        "--append-server-path".to_owned(),
    ];
    assert_eq!((seen, proxy.path(PATH)), (expected.to_vec(), PATH.to_owned()));
    assert!(lives(&process));
    drop(proxy);
    assert!(!lives(&process) && !private.exists(), "{process} {private:?}");
}

/// As after a SIGKILL of the plugin: nothing of it is left but the end of a pipe.
#[test]
fn a_proxy_whose_command_is_killed_ends() {
    let directory = tempfile::tempdir().unwrap();
    let mut proxy = Proxy::start(&goes_on(directory.path(), "x"), &Bounds::of_stream(PATH)).unwrap();
    let process = seen(directory.path()).pop().unwrap();
    std::fs::write(proxy.socket().unwrap().with_file_name(BESIDE), "x").unwrap();
    drop(proxy.alive.take());
    proxy.child.wait().unwrap();
    assert!(!lives(&process) && !proxy.socket().unwrap().parent().unwrap().exists());
}

#[test]
fn at_a_port_paths_begin_with_what_nobody_else_knows() {
    let directory = tempfile::tempdir().unwrap();
    let kubectl = goes_on(directory.path(), "127.0.0.1:4711");
    let paths = [0, 1].map(|_| {
        let mut proxy = at_port::start(&kubectl, &Bounds::of_stream(PATH)).unwrap();
        let path = proxy.path(PATH);
        let secret = path.strip_suffix(PATH).unwrap().to_owned();
        let seen = seen(directory.path());
        assert_eq!(seen[..3], ["proxy", "--address=127.0.0.1", "--port=0"]);
        assert_eq!(seen[3], format!("--api-prefix={secret}/"));
        assert!(
            secret.len() >= 22 && secret[1..].bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-'),
            "{secret}"
        );
        let _ = proxy.child.kill();
        secret
    });
    assert_ne!(paths[0], paths[1]);
}

#[test]
fn a_kubectl_that_fails_says_why_as_other_commands_do() {
    let directory = tempfile::tempdir().unwrap();
    let kubectl = Kubectl::played(directory.path(), "echo 'error: context \"lab\" does not exist' >&2; exit 1");
    let Err(error) = Proxy::start(&kubectl, &Bounds::of_stream(PATH)) else { panic!("it serves") };
    let text = format!("{error:#}");
    assert!(text.starts_with("the cluster cannot be reached: context \"lab\""), "{text}");
    assert_eq!(code_of(&error), crate::exit::FAILED);
}

#[test]
fn the_end_of_kubectl_is_noticed_although_its_keeper_waits() {
    let directory = tempfile::tempdir().unwrap();
    let proxy = Proxy::start(&goes_on(directory.path(), "x"), &Bounds::of_stream(PATH)).unwrap();
    assert_eq!(proxy.ended(), None);
    let process = seen(directory.path()).pop().unwrap();
    Command::new("kill").args(["-9", &process]).status().unwrap();
    while proxy.ended().is_none() {
        pause::briefly();
    }
}
