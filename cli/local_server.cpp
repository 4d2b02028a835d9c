#include "cli/local_server.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>
#include <string_view>
#include <utility>

#include <fmt/core.h>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/signal_set.hpp>
#include <boost/asio/thread_pool.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/core/tcp_stream.hpp>
#include <boost/beast/http.hpp>

#include "plan/text/errors.hpp"

namespace mgplan::cli {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = boost::beast::http;
using asio::ip::tcp;

int hex_digit(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    return -1;
}

/// "a%20b+c" as "a b c".
std::optional<std::string> decoded(std::string_view text) {
    std::string out;
    for (std::size_t i = 0; i < text.size(); ++i) {
        char c = text[i] == '+' ? ' ' : text[i];
        if (text[i] == '%') {
            if (i + 2 >= text.size()) return {};
            const int high = hex_digit(text[i + 1]), low = hex_digit(text[i + 2]);
            if (high < 0 || low < 0) return {};
            c = static_cast<char>(high * 16 + low);
            i += 2;
        }
        if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) return {};
        out += c;
    }
    return out;
}

constexpr std::string_view kBusy =
    "<!doctype html><meta charset=\"utf-8\"><title>mgplan</title><p>Other searches are running; this one starts when you ask again.</p>";

std::string plain_page(std::string_view text) {
    return fmt::format("<!doctype html><meta charset=\"utf-8\"><title>mgplan</title><p>{}</p>", text);
}

}  // namespace

std::optional<PageRequest> parse_target(const std::string& target) {
    PageRequest request;
    const std::string_view text = target;
    const auto question = text.find('?');
    const auto path = decoded(text.substr(0, question));
    if (!path || path->empty() || path->front() != '/') return {};
    request.path = *path;
    std::string_view rest = question == std::string_view::npos ? std::string_view() : text.substr(question + 1);
    while (!rest.empty()) {
        const std::string_view part = rest.substr(0, rest.find('&'));
        rest.remove_prefix(std::min(rest.size(), part.size() + 1));
        if (part.empty()) continue;
        const auto equals = part.find('=');
        const auto name = decoded(part.substr(0, equals));
        const auto value = decoded(equals == std::string_view::npos ? std::string_view() : part.substr(equals + 1));
        if (!name || !value) return {};
        request.fields[*name] = *value;
    }
    return request;
}

struct LocalServer::State {
    State(Quick quick_given, Search search_given, LocalServerLimits limits_given)
        : quick(std::move(quick_given)), search(std::move(search_given)), limits(limits_given), searchers(limits_given.searches) {}

    Quick quick;
    Search search;
    LocalServerLimits limits;
    std::uint16_t port = 0;
    std::size_t open = 0, searching = 0;  // touched by the context's thread alone
    std::atomic<bool> stopping = false;
    asio::io_context context{1};
    tcp::acceptor acceptor{context};
    asio::signal_set signals{context};
    asio::thread_pool searchers;  // the last member, so that its threads end before what they use

    void accept();
    void stop();
    [[nodiscard]] bool is_this_machine(std::string_view host) const {
        return host == fmt::format("127.0.0.1:{}", port) || host == fmt::format("localhost:{}", port);
    }
};

namespace {

/// One connection; kept alive by the operation it waits for. All but the search itself runs on the context's thread.
template <class State>
class Connection : public std::enable_shared_from_this<Connection<State>> {
public:
    Connection(State& state, tcp::socket socket) : state_(state), stream_(std::move(socket)) { ++state_.open; }
    ~Connection() { --state_.open; }
    Connection(const Connection&) = delete;
    Connection& operator=(const Connection&) = delete;

    void read() {
        parser_.header_limit(static_cast<std::uint32_t>(state_.limits.header_bytes));
        parser_.body_limit(std::uint64_t{0});
        stream_.expires_after(std::chrono::milliseconds(static_cast<std::int64_t>(state_.limits.header_seconds * 1000)));
        http::async_read_header(stream_, buffer_, parser_, [self = this->shared_from_this()](beast::error_code error, std::size_t) {
            if (error == http::error::header_limit) return self->answer({431, plain_page("The request is too long.")});
            if (error == http::error::body_limit) return self->refuse_body(self->parser_.get());
            if (error) return;  // gone, too slow, or no HTTP
            self->stream_.expires_never();
            self->take(self->parser_.get());
        });
    }

private:
    using Request = http::request<http::empty_body>;

    static std::string_view field(const Request& request, std::string_view name) {
        const auto text = request[beast::string_view(name.data(), name.size())];
        return {text.data(), text.size()};
    }

    /// True for a request that a page of another site makes the browser send. Browsers say so in Sec-Fetch-Site, older ones in Origin
    /// alone.
    bool is_of_another_site(const Request& request) const {
        const std::string_view site = field(request, "Sec-Fetch-Site"), origin = field(request, "Origin");
        if (!site.empty()) return site != "same-origin" && site != "none";
        constexpr std::string_view kScheme = "http://";
        return !origin.empty() && !(origin.starts_with(kScheme) && state_.is_this_machine(origin.substr(kScheme.size())));
    }

    bool is_read(const Request& request) {
        head_ = request.method() == http::verb::head;
        return head_ || request.method() == http::verb::get;
    }

    void refuse_body(const Request& request) {
        if (is_read(request)) return answer({413, plain_page("A request has no body here.")});
        answer({405, plain_page("Only GET and HEAD are answered.")});
    }

    void take(const Request& request) {
        if (!is_read(request)) return answer({405, plain_page("Only GET and HEAD are answered.")});
        if (request.count(http::field::host) != 1 || !state_.is_this_machine(field(request, "Host")))
            return answer({403, plain_page("This page is for this machine: open it as 127.0.0.1.")});
        const auto asked = parse_target(std::string(request.target().data(), request.target().size()));
        if (!asked) return answer({400, plain_page("The address cannot be read.")});
        if (auto at_hand = state_.quick(*asked)) return answer(std::move(*at_hand));
        if (is_of_another_site(request)) return answer({403, plain_page("Another site asks for a search: open it as 127.0.0.1.")});
        if (state_.searching >= state_.limits.searches) return answer({503, std::string(kBusy)});
        ++state_.searching;
        watch();
        asio::post(state_.searchers, [self = this->shared_from_this(), asked = *asked]() mutable {
            PageAnswer found;
            try {
                found = self->state_.search(asked, [&self] { return self->gone_ || self->state_.stopping; });
            } catch (const std::exception&) {
                found = {500, plain_page("The search ended with an internal error.")};
            }
            // The connection is handed back, because only the context's thread may destroy it.
            State& state = self->state_;
            asio::post(state.context, [self = std::move(self), found = std::move(found)]() mutable {
                --self->state_.searching;
                if (!self->gone_) self->answer(std::move(found));
            });
        });
    }

    /// Notes when the client closes its side while its answer is searched for. What it sends until then is passed over.
    void watch() {
        stream_.socket().async_wait(tcp::socket::wait_read, [weak = this->weak_from_this()](beast::error_code error) {
            const auto self = weak.lock();
            if (error || !self) return;
            beast::error_code ended;
            self->stream_.socket().non_blocking(true, ended);
            const auto count = self->stream_.socket().receive(asio::buffer(self->passed_over_), 0, ended);
            self->passed_over_bytes_ += count;
            if ((count == 0 && ended != asio::error::would_block) || self->passed_over_bytes_ > kMostPassedOver)
                self->gone_ = true;
            else
                self->watch();
        });
    }

    /// Until the client closes its side: a connection that is closed before what came is read loses the answer on its way.
    void pass_over_rest() {
        stream_.expires_after(std::chrono::seconds(1));
        stream_.async_read_some(asio::buffer(passed_over_), [self = this->shared_from_this()](beast::error_code error, std::size_t count) {
            self->passed_over_bytes_ += count;
            if (!error && self->passed_over_bytes_ <= kMostPassedOver) self->pass_over_rest();
        });
    }

    void answer(PageAnswer found) {
        response_.result(found.status);
        response_.set(http::field::content_type, found.type);
        response_.set(http::field::cache_control, "no-store");
        response_.set("X-Content-Type-Options", "nosniff");
        response_.set("Referrer-Policy", "no-referrer");
        // Pages load nothing from elsewhere, and are framed by none but this server's own.
        response_.set("Content-Security-Policy",
                      "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:; frame-src 'self'; "
                      "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'self'");
        if (found.status == 405) response_.set(http::field::allow, "GET, HEAD");
        if (found.status == 503) response_.set(http::field::retry_after, "1");
        response_.keep_alive(false);
        response_.content_length(found.body.size());
        if (!head_) response_.body() = std::move(found.body);
        stream_.expires_after(std::chrono::seconds(30));
        http::async_write(stream_, response_, [self = this->shared_from_this()](beast::error_code, std::size_t) {
            beast::error_code ignored;
            self->stream_.socket().shutdown(tcp::socket::shutdown_send, ignored);
            self->pass_over_rest();
        });
    }

    static constexpr std::size_t kMostPassedOver = std::size_t{1} << 20U;

    State& state_;
    beast::tcp_stream stream_;
    std::array<char, 4096> passed_over_{};  // bytes that a client sends after its request
    std::size_t passed_over_bytes_ = 0;
    beast::flat_buffer buffer_;
    http::request_parser<http::empty_body> parser_;
    http::response<http::string_body> response_;
    bool head_ = false;
    std::atomic<bool> gone_ = false;
};

}  // namespace

void LocalServer::State::accept() {
    acceptor.async_accept([this](beast::error_code error, tcp::socket socket) {
        if (!acceptor.is_open()) return;
        if (!error && open < limits.connections) std::make_shared<Connection<State>>(*this, std::move(socket))->read();
        accept();
    });
}

void LocalServer::State::stop() {
    stopping = true;
    context.stop();
}

LocalServer::LocalServer(std::uint16_t port, Quick quick, Search search, LocalServerLimits limits)
    : state_(std::make_unique<State>(std::move(quick), std::move(search), limits)) {
    const tcp::endpoint here(asio::ip::address_v4::loopback(), port);
    try {
        state_->acceptor.open(here.protocol());
        state_->acceptor.set_option(tcp::acceptor::reuse_address(true));
        state_->acceptor.bind(here);
        state_->acceptor.listen();
        state_->port = state_->acceptor.local_endpoint().port();
    } catch (const boost::system::system_error& error) {
        throw ConfigError(fmt::format("--port = {} cannot be had on 127.0.0.1 ({}); name another one, or 0 for one that is free", port,
                                      error.code().message()));
    }
}

LocalServer::~LocalServer() {
    state_->stopping = true;
    state_->searchers.join();
}

std::uint16_t LocalServer::port() const {
    return state_->port;
}

void LocalServer::run() {
    state_->signals.add(SIGINT);
    state_->signals.add(SIGTERM);
    state_->signals.async_wait([this](beast::error_code error, int) {
        if (!error) state_->stop();
    });
    state_->accept();
    state_->context.run();
    state_->searchers.join();
}

void LocalServer::stop() {
    asio::post(state_->context, [this] { state_->stop(); });
}

}  // namespace mgplan::cli
