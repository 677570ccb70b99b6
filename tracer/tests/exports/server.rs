//! A web server of a few lines: for pages that a browser is to read, and for
//! what is sent to a collector.

use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::Duration;

/// What somebody asked for.
#[derive(Debug)]
pub(crate) struct Request {
    pub(crate) method: String,
    pub(crate) path: String,
    /// Names in lower case.
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

impl Request {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let mut all = self.headers.iter();
        all.find(|(n, _)| n == name).map(|(_, v)| v.as_str())
    }
}

/// An answer as it goes over the wire; an empty one closes the connection.
pub(crate) type Answer = Vec<u8>;

/// An answer with its headers.
pub(crate) fn answer(status: &str, kind: &str, body: &[u8]) -> Answer {
    let len = body.len();
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {len}\r\nConnection: close\r\n\r\n"
    );
    [head.as_bytes(), body].concat()
}

/// Starts it; requests come out of the channel. It ends with the process.
pub(crate) fn serve(
    handle: impl Fn(&Request) -> Answer + Send + Sync + 'static,
) -> (String, Receiver<Request>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    let (sender, receiver) = channel();
    let handle = std::sync::Arc::new(handle);
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let (handle, sender) = (std::sync::Arc::clone(&handle), sender.clone());
            thread::spawn(move || connection(stream, &*handle, &sender));
        }
    });
    (address, receiver)
}

fn connection(stream: TcpStream, handle: &dyn Fn(&Request) -> Answer, out: &Sender<Request>) {
    stream
        .set_read_timeout(Some(Duration::from_mins(1)))
        .unwrap();
    let mut input = BufReader::new(stream);
    let Some(request) = read(&mut input) else {
        return;
    };
    let answer = handle(&request);
    let _ = out.send(request);
    let _ = input.get_mut().write_all(&answer);
}

fn read(input: &mut impl BufRead) -> Option<Request> {
    let mut line = String::new();
    input.read_line(&mut line).ok()?;
    let mut words = line.split_whitespace();
    let (method, path) = (words.next()?.to_owned(), words.next()?.to_owned());
    let mut headers = Vec::new();
    loop {
        let mut line = String::new();
        input.read_line(&mut line).ok()?;
        let Some((name, value)) = line.trim().split_once(':') else {
            break;
        };
        headers.push((name.to_lowercase(), value.trim().to_owned()));
    }
    let mut request = Request {
        method,
        path,
        headers,
        body: Vec::new(),
    };
    let len = request
        .header("content-length")
        .and_then(|n| n.parse().ok());
    request.body = vec![0; len.unwrap_or(0)];
    input.read_exact(&mut request.body).ok()?;
    Some(request)
}
