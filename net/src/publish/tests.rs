use super::*;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

fn publish(text: &str) -> Publish {
    text.parse().unwrap()
}

#[test]
fn a_published_port_is_read_and_written_back() {
    for (text, written) in [
        ("2222:22", "2222:22/tcp"),
        ("127.0.0.1:8080:80/tcp", "127.0.0.1:8080:80/tcp"),
        ("[::1]:5353:53/udp", "[::1]:5353:53/udp"),
    ] {
        assert_eq!(publish(text).to_string(), written);
        assert_eq!(publish(written), publish(text));
    }
    for bad in ["", "22", "0:22", "22:0", "22:65536", "a:22", "::1:80:80", "1.2.3:80:80", "80:80/sctp", "80:80/", ":22"]
    {
        assert!(matches!(bad.parse::<Publish>(), Err(PublishError::Syntax { .. })), "{bad}");
    }
}

#[test]
fn a_port_the_binding_keeps_out_is_refused_before_it_leads_nowhere() {
    let mut masquerade = Masquerade::default();
    assert!(check(&[publish("2222:22")], &masquerade).is_ok());
    masquerade.ports.push(Port { protocol: Protocol::Tcp, port: 22.try_into().unwrap() });
    assert!(check(&[publish("2222:22")], &masquerade).is_ok());
    let refused = check(&[publish("2222:22"), publish("2222:22/udp")], &masquerade).unwrap_err();
    assert!(refused.to_string().contains("22/udp is not among them"), "{refused}");
}

#[test]
fn a_port_in_use_is_reported_and_the_others_are_released() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let taken_port = taken.local_addr().unwrap().port();
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let wanted = [publish(&format!("127.0.0.1:{free}:80")), publish(&format!("127.0.0.1:{taken_port}:22"))];
    assert!(matches!(listen(&wanted), Err(PublishError::InUse { publish, .. }) if publish == wanted[1]));
    assert!(matches!(listen(&[publish(&format!("{taken_port}:22"))]), Err(PublishError::InUse { .. })));
    assert!(listen(&wanted[..1]).is_ok());
    let twice = [wanted[0], wanted[0]];
    assert!(matches!(listen(&twice), Err(PublishError::Twice { .. })));
}

/// Takes a free port by asking the kernel for one.
fn listeners(guest: u16, protocol: Published) -> (Listeners, SocketAddr) {
    let guest = NonZeroU16::new(guest).unwrap();
    let mut listeners = Listeners { tcp: Vec::new(), udp: Vec::new() };
    let address = match protocol {
        Published::Tcp => {
            listeners.tcp.push((std::net::TcpListener::bind("127.0.0.1:0").unwrap(), guest));
            listeners.tcp[0].0.local_addr().unwrap()
        }
        Published::Udp => {
            listeners.udp.push((std::net::UdpSocket::bind("127.0.0.1:0").unwrap(), guest));
            listeners.udp[0].0.local_addr().unwrap()
        }
    };
    (listeners, address)
}

const GUEST: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

#[tokio::test]
async fn bytes_pass_both_ways_and_a_half_closed_connection_stays_half_open() {
    let server = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (listeners, address) = listeners(server.local_addr().unwrap().port(), Published::Tcp);
    let serve = async {
        let (mut guest, _) = server.accept().await.unwrap();
        let mut asked = String::new();
        guest.read_to_string(&mut asked).await.unwrap();
        guest.write_all(format!("you sent {asked}").as_bytes()).await.unwrap();
    };
    let client = async {
        let mut client = tokio::net::TcpStream::connect(address).await.unwrap();
        client.write_all(b"hello").await.unwrap();
        client.shutdown().await.unwrap();
        let mut answer = String::new();
        client.read_to_string(&mut answer).await.unwrap();
        answer
    };
    let work = std::pin::pin!(async { futures::join!(serve, client).1 });
    let relay = std::pin::pin!(relay(listeners, GUEST));
    let futures::future::Either::Left((answer, _)) = futures::future::select(work, relay).await else { panic!() };
    assert_eq!(answer, "you sent hello");
}

#[tokio::test]
async fn a_guest_that_does_not_listen_closes_the_connection_and_nothing_else() {
    let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let (listeners, address) = listeners(closed, Published::Tcp);
    let work = std::pin::pin!(async {
        for _ in 0..3 {
            let mut client = tokio::net::TcpStream::connect(address).await.unwrap();
            assert_eq!(client.read(&mut [0; 1]).await.unwrap_or(0), 0);
        }
    });
    let relay = std::pin::pin!(relay(listeners, GUEST));
    assert!(matches!(futures::future::select(work, relay).await, futures::future::Either::Left(_)));
}

#[tokio::test]
async fn answers_find_back_to_the_client_that_asked() {
    let server = tokio::net::UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let (listeners, address) = listeners(server.local_addr().unwrap().port(), Published::Udp);
    let serve = async {
        let mut buffer = [0; 100];
        for _ in 0..4 {
            let (length, from) = server.recv_from(&mut buffer).await.unwrap();
            server.send_to(&buffer[..length], from).await.unwrap();
        }
    };
    let client = |text: &'static str| async move {
        let client = tokio::net::UdpSocket::bind("127.0.0.1:0").await.unwrap();
        client.connect(address).await.unwrap();
        let mut buffer = [0; 100];
        for _ in 0..2 {
            client.send(text.as_bytes()).await.unwrap();
            let length = client.recv(&mut buffer).await.unwrap();
            assert_eq!(&buffer[..length], text.as_bytes());
        }
    };
    let work = std::pin::pin!(async { futures::join!(serve, client("one"), client("other")) });
    let relay = std::pin::pin!(relay(listeners, GUEST));
    assert!(matches!(futures::future::select(work, relay).await, futures::future::Either::Left(_)));
}
