#pragma once
// Answers a browser on this machine over HTTP: requests without a body, one answer for each connection.

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>

namespace mgplan::cli {

/// The requested URL: "/plan?world=16&seq=4k" has the path "/plan" and two fields, both decoded. A field given twice keeps its last value.
struct PageRequest {
    std::string path;
    std::map<std::string, std::string> fields;
};

struct PageAnswer {
    unsigned status = 200;
    std::string body;
    std::string type = "text/html; charset=utf-8";
};

struct LocalServerLimits {
    std::size_t connections = 32;     ///< open at once; further ones are closed unanswered
    std::size_t searches = 2;         ///< long answers at work at once; further ones are refused with status 503
    std::size_t header_bytes = 8192;  ///< of a request; longer ones are refused with status 431
    double header_seconds = 10;       ///< for the whole header; slower clients are cut off
};

/// An HTTP server that binds 127.0.0.1 alone and answers requests whose Host is this machine. Other hosts' names are refused with 403, so
/// that a page from elsewhere cannot read the answers through a name of its own, and so are searches requested by a page of another
/// site, which would take the places of the reader's own; methods but GET and HEAD with 405.
class LocalServer {
public:
    /// Returns answers that take no time; nothing if the request is for `search`.
    using Quick = std::function<std::optional<PageAnswer>(const PageRequest&)>;
    /// Returns answers that take long; runs on a thread of its own. `closed()` turns true once the client has gone or the server stops.
    using Search = std::function<PageAnswer(const PageRequest&, const std::function<bool()>& closed)>;

    /// Starts to listen. `port` 0: a free one. Throws ConfigError if the port is not available.
    LocalServer(std::uint16_t port, Quick quick, Search search, LocalServerLimits limits = {});
    ~LocalServer();
    LocalServer(const LocalServer&) = delete;
    LocalServer& operator=(const LocalServer&) = delete;

    [[nodiscard]] std::uint16_t port() const;
    /// Answers until stop(), SIGINT or SIGTERM; returns when running searches have ended.
    void run();
    /// May be called from any thread.
    void stop();

private:
    struct State;
    std::unique_ptr<State> state_;
};

/// Reads the target of a request line; returns nothing if an escape is broken or a byte is a control character.
[[nodiscard]] std::optional<PageRequest> parse_target(const std::string& target);

}  // namespace mgplan::cli
