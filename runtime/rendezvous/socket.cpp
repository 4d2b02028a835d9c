#include "runtime/rendezvous/socket.hpp"

#include <fcntl.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <memory>
#include <utility>

#include <fmt/format.h>

#include "plan/text/errors.hpp"

namespace mgplan::runtime {
namespace {

const sockaddr* as_sockaddr(const Address& address) {
    return reinterpret_cast<const sockaddr*>(&address.storage);
}

/// Small messages at once, and no writes into closed connections that end the process (MSG_NOSIGNAL below).
void no_delay(int file) {
    const int on = 1;
    static_cast<void>(::setsockopt(file, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on)));
}

Socket make(const Address& address) {
    return Socket(::socket(address.storage.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
}

/// Closes the socket, keeps errno, which closing may change, and returns a socket that is not open.
Socket failed(Socket socket) {
    const int why = errno;
    socket.close();
    errno = why;
    return {};
}

Address address_of(const sockaddr* from, socklen_t length) {
    Address address;
    std::memcpy(&address.storage, from, length);
    address.length = length;
    return address;
}

}  // namespace

Socket& Socket::operator=(Socket&& other) noexcept {
    if (this != &other) {
        close();
        file_ = other.release();
    }
    return *this;
}

void Socket::close() noexcept {
    if (file_ >= 0) ::close(file_);
    file_ = -1;
}

int Socket::release() noexcept {
    return std::exchange(file_, -1);
}

std::string Address::text() const {
    std::array<char, NI_MAXHOST> host{};
    if (::getnameinfo(as_sockaddr(*this), length, host.data(), host.size(), nullptr, 0, NI_NUMERICHOST) != 0) return "an unknown address";
    return storage.ss_family == AF_INET6 ? fmt::format("[{}]:{}", host.data(), port()) : fmt::format("{}:{}", host.data(), port());
}

int Address::port() const {
    if (storage.ss_family == AF_INET6) return ntohs(reinterpret_cast<const sockaddr_in6*>(&storage)->sin6_port);
    return ntohs(reinterpret_cast<const sockaddr_in*>(&storage)->sin_port);
}

void Address::set_port(int port) {
    const auto number = htons(static_cast<std::uint16_t>(port));
    if (storage.ss_family == AF_INET6) {
        reinterpret_cast<sockaddr_in6*>(&storage)->sin6_port = number;
    } else {
        reinterpret_cast<sockaddr_in*>(&storage)->sin_port = number;
    }
}

std::vector<Address> resolve(const std::string& host, int port) {
    addrinfo hints{};
    hints.ai_family = AF_UNSPEC;
    hints.ai_socktype = SOCK_STREAM;
    addrinfo* found = nullptr;
    const int error = ::getaddrinfo(host.c_str(), nullptr, &hints, &found);
    if (error != 0) {
        throw ConfigError(fmt::format("MASTER_ADDR = {} stands for no address ({}); set it to a name or number of rank 0's machine",
                                      host.substr(0, 100), ::gai_strerror(error)));
    }
    const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> owner(found, ::freeaddrinfo);
    std::vector<Address> addresses;
    for (const addrinfo* each = found; each != nullptr; each = each->ai_next) {
        addresses.push_back(address_of(each->ai_addr, each->ai_addrlen));
        addresses.back().set_port(port);
    }
    return addresses;
}

std::vector<Address> addresses_of_interface(const std::string& name) {
    ifaddrs* found = nullptr;
    if (::getifaddrs(&found) != 0)
        throw ConfigError(fmt::format("the interfaces of this machine cannot be listed ({})", std::strerror(errno)));
    const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> owner(found, ::freeifaddrs);
    std::vector<Address> addresses;
    std::vector<std::string> names;
    for (const int family : {AF_INET, AF_INET6}) {
        for (const ifaddrs* each = found; each != nullptr; each = each->ifa_next) {
            if (each->ifa_addr == nullptr || each->ifa_addr->sa_family != family || (each->ifa_flags & IFF_UP) == 0) continue;
            if (std::find(names.begin(), names.end(), each->ifa_name) == names.end()) names.emplace_back(each->ifa_name);
            if (name == each->ifa_name)
                addresses.push_back(address_of(each->ifa_addr, family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6)));
        }
    }
    if (addresses.empty()) {
        throw ConfigError(fmt::format("MGPLAN_INTERFACE = {} is no interface of this machine that is up and has an address; there are {}",
                                      name.substr(0, 60), fmt::join(names, ", ")));
    }
    return addresses;
}

Socket listen_at(const Address& address) {
    Socket socket = make(address);
    if (!socket.open()) return socket;
    // Where the last job has just ended its connections linger; a port on which somebody listens stays taken.
    const int on = 1;
    static_cast<void>(::setsockopt(socket.file(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)));
    if (::bind(socket.file(), as_sockaddr(address), address.length) != 0 || ::listen(socket.file(), 1024) != 0)
        return failed(std::move(socket));
    return socket;
}

Address local_address(const Socket& socket) {
    Address address;
    address.length = sizeof(address.storage);
    static_cast<void>(::getsockname(socket.file(), reinterpret_cast<sockaddr*>(&address.storage), &address.length));
    return address;
}

Address peer_address(const Socket& socket) {
    Address address;
    address.length = sizeof(address.storage);
    static_cast<void>(::getpeername(socket.file(), reinterpret_cast<sockaddr*>(&address.storage), &address.length));
    return address;
}

Socket accept_from(const Socket& listener) {
    Socket socket(::accept4(listener.file(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (socket.open()) no_delay(socket.file());
    return socket;
}

Socket connect_to(const Address& address, const Address& from, std::chrono::steady_clock::time_point until) {
    Socket socket = make(address);
    if (!socket.open()) return socket;
    no_delay(socket.file());
    if (from.length != 0 && ::bind(socket.file(), as_sockaddr(from), from.length) != 0) return failed(std::move(socket));
    if (::connect(socket.file(), as_sockaddr(address), address.length) == 0) return socket;
    if (errno != EINPROGRESS) return failed(std::move(socket));
    for (;;) {
        const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - std::chrono::steady_clock::now()).count();
        if (left <= 0) {
            errno = ETIMEDOUT;
            return failed(std::move(socket));
        }
        pollfd poll{socket.file(), POLLOUT, 0};
        const int ready = ::poll(&poll, 1, static_cast<int>(std::min<std::int64_t>(left, 1000)));
        if (ready < 0 && errno != EINTR) return failed(std::move(socket));
        if (ready <= 0) continue;
        int error = 0;
        socklen_t size = sizeof(error);
        if (::getsockopt(socket.file(), SOL_SOCKET, SO_ERROR, &error, &size) != 0) error = errno;
        if (error == 0) return socket;
        errno = error;
        return failed(std::move(socket));
    }
}

Transfer read_some(const Socket& socket, std::string& to) {
    std::array<char, 65536> bytes;  // NOLINT(cppcoreguidelines-pro-type-member-init): written by recv
    const auto got = ::recv(socket.file(), bytes.data(), bytes.size(), 0);
    if (got > 0) {
        to.append(bytes.data(), static_cast<std::size_t>(got));
        return Transfer::moved;
    }
    return got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR) ? Transfer::would_block : Transfer::ended;
}

Transfer write_some(const Socket& socket, std::string& from) {
    const auto sent = ::send(socket.file(), from.data(), from.size(), MSG_NOSIGNAL);
    if (sent >= 0) {
        from.erase(0, static_cast<std::size_t>(sent));
        return Transfer::moved;
    }
    return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR ? Transfer::would_block : Transfer::ended;
}

Waker::Waker() {
    std::array<int, 2> ends{};
    if (::pipe2(ends.data(), O_NONBLOCK | O_CLOEXEC) != 0)
        throw RunError(fmt::format("this process can open no more files ({}); raise its limit (ulimit -n)", std::strerror(errno)));
    reading_ = Socket(ends[0]);
    writing_ = Socket(ends[1]);
}

void Waker::wake() const noexcept {
    const char byte = 0;
    [[maybe_unused]] const auto written = ::write(writing_.file(), &byte, 1);  // a full pipe wakes as well
}

void Waker::clear() const noexcept {
    std::array<char, 256> bytes;  // NOLINT(cppcoreguidelines-pro-type-member-init): written by read
    while (::read(reading_.file(), bytes.data(), bytes.size()) > 0) {
    }
}

}  // namespace mgplan::runtime
