#pragma once
// TCP for the rendezvous: addresses, and sockets that never block.

#include <sys/socket.h>

#include <chrono>
#include <string>
#include <string_view>
#include <vector>

namespace mgplan::runtime {

/// Closes what it holds.
class Socket {
public:
    Socket() = default;
    explicit Socket(int file) : file_(file) {}
    Socket(Socket&& other) noexcept : file_(other.release()) {}
    Socket& operator=(Socket&& other) noexcept;
    ~Socket() { close(); }

    [[nodiscard]] int file() const { return file_; }
    [[nodiscard]] bool open() const { return file_ >= 0; }
    void close() noexcept;
    [[nodiscard]] int release() noexcept;

private:
    int file_ = -1;
};

struct Address {
    sockaddr_storage storage{};
    socklen_t length = 0;

    /// "127.0.0.1:29500", "[fe80::1]:29500"
    [[nodiscard]] std::string text() const;
    [[nodiscard]] int port() const;
    void set_port(int port);
};

/// Returns the addresses of a host name or number, with this port. Throws ConfigError if there are none.
[[nodiscard]] std::vector<Address> resolve(const std::string& host, int port);

/// Addresses of an interface of this machine ("eth0"), IPv4 before IPv6, port 0. Throws ConfigError, naming those there are.
[[nodiscard]] std::vector<Address> addresses_of_interface(const std::string& name);

/// Listens at this very address. On failure not open, with the reason in errno.
[[nodiscard]] Socket listen_at(const Address& address);
[[nodiscard]] Address local_address(const Socket& socket);
[[nodiscard]] Address peer_address(const Socket& socket);
/// The next connection; not open where none waits.
[[nodiscard]] Socket accept_from(const Socket& listener);

/// A connection, made by `until` or not open, with the reason in errno. `from`: where it begins, port 0, or of length 0: anywhere.
[[nodiscard]] Socket connect_to(const Address& address, const Address& from, std::chrono::steady_clock::time_point until);

enum class Transfer : std::uint8_t { moved, would_block, ended };
/// Appends up to 64 KiB of received bytes.
[[nodiscard]] Transfer read_some(const Socket& socket, std::string& to);
/// Writes as many bytes as the socket takes, and drops them from the front.
[[nodiscard]] Transfer write_some(const Socket& socket, std::string& from);

/// A pair of connected ends, by which one thread wakes another that polls.
class Waker {
public:
    Waker();
    void wake() const noexcept;
    void clear() const noexcept;
    [[nodiscard]] int file() const { return reading_.file(); }

private:
    Socket reading_, writing_;
};

}  // namespace mgplan::runtime
