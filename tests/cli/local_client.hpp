#pragma once
// Requests to a server on this machine, byte by byte.

#include <cstdint>
#include <string>

#include <arpa/inet.h>
#include <fmt/core.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

namespace mgplan::cli::testing {

/// A connection to 127.0.0.1.
class Client {
public:
    explicit Client(std::uint16_t port) : socket_(::socket(AF_INET, SOCK_STREAM, 0)) {
        sockaddr_in to{};
        to.sin_family = AF_INET;
        to.sin_port = htons(port);
        to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        timeval patience{20, 0};
        ::setsockopt(socket_, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
        connected_ = ::connect(socket_, reinterpret_cast<sockaddr*>(&to), sizeof to) == 0;
    }
    ~Client() { ::close(socket_); }
    Client(const Client&) = delete;
    Client& operator=(const Client&) = delete;

    void send(const std::string& text) const { (void)::send(socket_, text.data(), text.size(), MSG_NOSIGNAL); }
    [[nodiscard]] bool connected() const { return connected_; }
    /// All that comes until the server closes.
    [[nodiscard]] std::string rest() const {
        std::string text;
        char bytes[4096];
        for (ssize_t n = 0; (n = ::recv(socket_, bytes, sizeof bytes, 0)) > 0;) text.append(bytes, static_cast<std::size_t>(n));
        return text;
    }

private:
    int socket_;
    bool connected_ = false;
};

inline std::string request(std::uint16_t port, const std::string& target, const std::string& host = "127.0.0.1",
                           const std::string& method = "GET") {
    return fmt::format("{} {} HTTP/1.1\r\nHost: {}:{}\r\n\r\n", method, target, host, port);
}

inline std::string answer_to(std::uint16_t port, const std::string& text) {
    const Client client(port);
    client.send(text);
    return client.rest();
}

}  // namespace mgplan::cli::testing
