// The server behind `mgplan serve`: who is answered, what is refused, and that a search ends when its reader goes.
#include "cli/local_server.hpp"

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cli/command.hpp"
#include "local_client.hpp"
#include "plan/text/errors.hpp"

namespace mgplan::cli::testing::local_server_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;

/// A server at work: "/" is at hand, everything else is searched for by `search`.
class Served {
public:
    explicit Served(LocalServer::Search search = {}, LocalServerLimits limits = {})
        : server_(
              0,
              [](const PageRequest& asked) -> std::optional<PageAnswer> {
                  if (asked.path == "/") return PageAnswer{200, "the page"};
                  return std::nullopt;
              },
              std::move(search), limits),
          thread_([this] { server_.run(); }) {}
    ~Served() {
        server_.stop();
        thread_.join();
    }
    Served(const Served&) = delete;
    Served& operator=(const Served&) = delete;
    [[nodiscard]] std::uint16_t port() const { return server_.port(); }

private:
    LocalServer server_;
    std::thread thread_;
};

TEST(LocalServer, AnswersRequestsForThisMachineAlone) {
    const Served served;
    const std::uint16_t port = served.port();
    EXPECT_THAT(answer_to(port, request(port, "/")),
                AllOf(StartsWith("HTTP/1.1 200"), HasSubstr("the page"), HasSubstr("Content-Security-Policy: default-src 'none'")));
    EXPECT_THAT(answer_to(port, request(port, "/", "localhost")), StartsWith("HTTP/1.1 200"));
    EXPECT_THAT(answer_to(port, request(port, "/", "example.com")), StartsWith("HTTP/1.1 403"));
    EXPECT_THAT(answer_to(port, "GET / HTTP/1.1\r\n\r\n"), StartsWith("HTTP/1.1 403"));
    EXPECT_THAT(answer_to(port, request(port, "/", "127.0.0.1", "POST")), StartsWith("HTTP/1.1 405"));
    EXPECT_THAT(answer_to(port, request(port, "/%zz")), StartsWith("HTTP/1.1 400"));
    EXPECT_THAT(answer_to(port, request(port, "/" + std::string(9000, 'a'))), StartsWith("HTTP/1.1 431"));
    const std::string head = answer_to(port, request(port, "/", "127.0.0.1", "HEAD"));
    EXPECT_THAT(head, AllOf(StartsWith("HTTP/1.1 200"), HasSubstr("Content-Length: 8")));
    EXPECT_THAT(head.substr(head.find("\r\n\r\n") + 4), IsEmpty());
}

TEST(LocalServer, AnswersRequestsWithABodyBeforeItCloses) {
    const Served served;
    const std::uint16_t port = served.port();
    const auto with_body = [&](const std::string& method, std::size_t bytes) {
        return answer_to(port, fmt::format("{} / HTTP/1.1\r\nHost: 127.0.0.1:{}\r\nContent-Length: {}\r\n\r\n{}", method, port, bytes,
                                           std::string(bytes, 'x')));
    };
    for (const std::size_t bytes : {1U, 100'000U}) {
        EXPECT_THAT(with_body("POST", bytes), AllOf(StartsWith("HTTP/1.1 405"), HasSubstr("Allow: GET, HEAD")));
        EXPECT_THAT(with_body("GET", bytes), StartsWith("HTTP/1.1 413"));
    }
    EXPECT_THAT(answer_to(port, request(port, "/")), StartsWith("HTTP/1.1 200"));
}

TEST(LocalServer, SearchesForItsOwnPagesAlone) {
    const Served served([](const PageRequest&, const std::function<bool()>&) { return PageAnswer{200, "found"}; });
    const std::uint16_t port = served.port();
    const auto with = [&](const std::string& target, const std::string& fields) {
        return answer_to(port, fmt::format("GET {} HTTP/1.1\r\nHost: 127.0.0.1:{}\r\n{}\r\n", target, port, fields));
    };
    for (const char* other : {"Sec-Fetch-Site: cross-site\r\n", "Sec-Fetch-Site: same-site\r\n", "Origin: http://evil.example\r\n",
                              "Origin: null\r\n", "Host: example.com\r\n"})
        EXPECT_THAT(with("/plan", other), StartsWith("HTTP/1.1 403")) << other;
    for (const std::string& own : {std::string(), std::string("Sec-Fetch-Site: same-origin\r\n"), std::string("Sec-Fetch-Site: none\r\n"),
                                   fmt::format("Origin: http://127.0.0.1:{}\r\n", port)})
        EXPECT_THAT(with("/plan", own), StartsWith("HTTP/1.1 200")) << own;
    EXPECT_THAT(with("/", "Sec-Fetch-Site: cross-site\r\n"), StartsWith("HTTP/1.1 200")) << "a link to the page";
}

TEST(LocalServer, DecodesWhatIsAskedFor) {
    const auto asked = parse_target("/plan?a=1&b=x+%2f%20y&a=2&flag");
    ASSERT_TRUE(asked);
    EXPECT_EQ(asked->path, "/plan");
    EXPECT_EQ(asked->fields, (std::map<std::string, std::string>{{"a", "2"}, {"b", "x / y"}, {"flag", ""}}));
    for (const char* broken : {"", "plan", "/%", "/%0", "/?a=%00", "/?a=%1b"}) EXPECT_FALSE(parse_target(broken)) << broken;
}

/// A search that goes on until it is told to end, and counts how many were begun and ended.
struct Endless {
    std::mutex mutex;
    std::condition_variable changed;
    int begun = 0, ended = 0;

    PageAnswer operator()(const PageRequest&, const std::function<bool()>& closed) {
        count(begun);
        while (!closed()) std::this_thread::sleep_for(std::chrono::milliseconds(2));
        count(ended);
        return {200, "too late"};
    }
    void count(int& which) {
        const std::lock_guard lock(mutex);
        ++which;
        changed.notify_all();
    }
    int number_of(const int& which) {
        const std::lock_guard lock(mutex);
        return which;
    }
    bool wait_for(const int& which, int number) {
        std::unique_lock lock(mutex);
        return changed.wait_for(lock, std::chrono::seconds(20), [&] { return which == number; });
    }
};

TEST(LocalServer, EndsASearchWhoseReaderHasGone) {
    Endless endless;
    const Served served(std::ref(endless));
    int number = 0;
    for (const std::string behind : {"", "x"}) {
        ++number;
        {
            const Client client(served.port());
            client.send(request(served.port(), "/plan"));
            ASSERT_TRUE(endless.wait_for(endless.begun, number));
            client.send(behind);
            EXPECT_EQ(endless.number_of(endless.ended), number - 1);
        }
        EXPECT_TRUE(endless.wait_for(endless.ended, number)) << "'" << behind << "' after the request";
    }
}

TEST(LocalServer, RefusesSearchesBeyondItsLimitAndStillShowsThePage) {
    Endless endless;
    LocalServerLimits limits;
    limits.searches = 1;
    const Served served(std::ref(endless), limits);
    const std::uint16_t port = served.port();
    const Client first(port);
    first.send(request(port, "/plan"));
    ASSERT_TRUE(endless.wait_for(endless.begun, 1));
    EXPECT_THAT(answer_to(port, request(port, "/plan")), AllOf(StartsWith("HTTP/1.1 503"), HasSubstr("Retry-After: 1")));
    EXPECT_THAT(answer_to(port, request(port, "/")), StartsWith("HTTP/1.1 200"));
}

TEST(LocalServer, CutsOffClientsThatSayNothing) {
    LocalServerLimits limits;
    limits.header_seconds = 0.05;
    limits.connections = 1;
    const Served served({}, limits);
    const Client silent(served.port());
    silent.send("GET / HT");
    EXPECT_THAT(silent.rest(), IsEmpty());
    std::string answer;  // the place is free once the server has heard of the end
    for (int tries = 0; tries < 100 && answer.empty(); ++tries) {
        answer = answer_to(served.port(), request(served.port(), "/"));
        if (answer.empty()) std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
    EXPECT_THAT(answer, StartsWith("HTTP/1.1 200"));
}

TEST(LocalServer, StopsWhileASearchGoesOn) {
    Endless endless;
    auto served = std::make_unique<Served>(std::ref(endless));
    const Client client(served->port());
    client.send(request(served->port(), "/plan"));
    ASSERT_TRUE(endless.wait_for(endless.begun, 1));
    EXPECT_EQ(endless.number_of(endless.ended), 0);
    served.reset();  // returns while the client still waits
    EXPECT_EQ(endless.ended, 1);
}

TEST(LocalServer, SaysThatAPortIsTaken) {
    const Served served;
    try {
        const LocalServer other(served.port(), {}, {});
        FAIL() << "a port was had twice";
    } catch (const ConfigError& error) {
        EXPECT_THAT(error.what(), AllOf(HasSubstr(fmt::format("--port = {}", served.port())), HasSubstr("or 0 for one that is free")));
    }
}

}  // namespace
}  // namespace mgplan::cli::testing::local_server_test
