// `mgplan serve` as its users start it: the program, its page, and what the page's fields ask for.
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <thread>

#include <nlohmann/json.hpp>

#include "browser.hpp"
#include "local_client.hpp"
#include "say.hpp"

namespace mgplan::cli::testing::serve_command_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

/// The program, serving; Ctrl-C ends it.
class Serving {
public:
    Serving() : folder_(), out_(folder_.path("serve.json")) {
        process_ = ::fork();
        if (process_ == 0) {
            if (std::freopen(out_.c_str(), "w", stdout) == nullptr) ::_exit(99);
            ::execl(MGPLAN_PROGRAM, MGPLAN_PROGRAM, "serve", "--world=8", "--model=llama3-8b", "--port", "0", "--format", "json", nullptr);
            ::_exit(99);
        }
        for (int tries = 0; tries < 2000 && url_.empty(); ++tries) {
            std::this_thread::sleep_for(std::chrono::milliseconds(10));
            const auto said = nlohmann::json::parse(tests::text_of_file(out_), nullptr, false);
            if (said.is_object()) url_ = said["url"];
        }
    }
    ~Serving() {
        if (process_ > 0) (void)end();
    }
    Serving(const Serving&) = delete;
    Serving& operator=(const Serving&) = delete;

    /// Its exit code.
    int end() {
        int status = 0;
        ::kill(process_, SIGINT);
        ::waitpid(process_, &status, 0);
        process_ = -1;
        return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    }
    [[nodiscard]] const std::string& url() const { return url_; }
    [[nodiscard]] std::uint16_t port() const { return static_cast<std::uint16_t>(std::stoi(url_.substr(url_.rfind(':') + 1))); }
    /// What Chromium shows of `place`.
    [[nodiscard]] Browsed shown(const std::string& place, const std::string& options = "") const {
        const std::string out = folder_.path("dom.html"), log = folder_.path("dom.log");
        const std::string command = fmt::format(
            "timeout 100 '{}' --headless --no-sandbox --disable-gpu --disable-dev-shm-usage --no-first-run --enable-logging=stderr "
            "--user-data-dir='{}' --virtual-time-budget=20000 --dump-dom {} '{}{}' >'{}' 2>'{}' </dev/null",
            MGPLAN_CHROMIUM, folder_.path("profile"), options, url_, place, out, log);
        const int status = std::system(command.c_str());
        return {status, tests::text_of_file(out), tests::text_of_file(log)};
    }

private:
    TempFolder folder_;
    std::string out_, url_;
    pid_t process_ = -1;
};

TEST(Serve, ShowsTheSearchAndEndsByCtrlC) {
    if (std::string_view(MGPLAN_CHROMIUM).empty()) GTEST_SKIP() << "chromium is not installed";
    Serving serving;
    ASSERT_THAT(serving.url(), StartsWith("http://127.0.0.1:"));
    const Browsed page = serving.shown("");
    EXPECT_EQ(page.status, 0) << page.log;
    EXPECT_THAT(page.log, Not(HasSubstr("CONSOLE")));
    // The frame holds the search.
    EXPECT_THAT(page.out, AllOf(HasSubstr("<title>llama3-8b on dgx-h100</title>"), HasSubstr("llama3-8b on 8 GPUs")));
    const Browsed wider = serving.shown("plan?world=16&global_batch=64&sequence=4k&precision=fp8&restrict=--tp+2+--pp=1");
    EXPECT_THAT(wider.out, HasSubstr("<title>llama3-8b on 16 GPUs"));
    const Browsed refused = serving.shown("plan?world=16&restrict=--output+x");
    EXPECT_THAT(refused.out, HasSubstr("restricted to = '--output' is no option that restricts a search"));
    const Browsed other = serving.shown("plan?world=24&model=llama3.2-1b&cluster=dgx-a100-80g&figures=memory_gib%3D40&recompute=full");
    EXPECT_THAT(other.out, AllOf(HasSubstr("<title>llama3.2-1b on 24 GPUs"), HasSubstr("--recompute full"), HasSubstr("of 40.0 GiB")));
    for (const char* file : {"model=.%2Fconfig.json", "cluster=%2Fetc%2Fpasswd", "cluster=mine.json"})
        EXPECT_THAT(serving.shown(std::string("plan?world=8&") + file).out, HasSubstr("is no preset; choose one of the menu")) << file;
    EXPECT_THAT(serving.shown("plan?world=8&cluster=dgx-h100&figures=memory=40").out, HasSubstr("memory"));
    const Browsed wrong = serving.shown("plan?world=none");
    EXPECT_THAT(wrong.out, HasSubstr("--world"));
    EXPECT_EQ(serving.end(), kDone);
}

// The address of the page says what its fields hold and what stands beside: whoever opens it sees the same.
TEST(Serve, ShowsWhatItsAddressHolds) {
    if (std::string_view(MGPLAN_CHROMIUM).empty()) GTEST_SKIP() << "chromium is not installed";
    const Serving serving;
    const Browsed page =
        serving.shown("?world=24&model=llama3.2-1b&tokens=1T&price=2&a=world%3D8%26model%3Dllama3-8b", "--window-size=400,900");
    EXPECT_EQ(page.status, 0) << page.log;
    EXPECT_THAT(page.log, Not(HasSubstr("CONSOLE")));
    EXPECT_THAT(page.out,
                AllOf(HasSubstr("llama3.2-1b on 24 GPUs"), HasSubstr("llama3-8b on 8 GPUs"), HasSubstr("world 8, model llama3-8b")));
    EXPECT_THAT(page.out, ::testing::ContainsRegex("id=\"cost\">#1: [0-9.]+ days, [0-9,]+ GPU-hours, [0-9,]+ at 2 a GPU-hour<"));
    EXPECT_THAT(page.out, ::testing::ContainsRegex("id=\"cost-a\">#1: [0-9.]+ days"));
}

TEST(Serve, AnswersARequestAgainFromMemory) {
    const Serving serving;
    const auto seconds = [&] {
        const auto begin = std::chrono::steady_clock::now();
        EXPECT_THAT(answer_to(serving.port(), request(serving.port(), "/plan?world=128&model=qwen3-30b-a3b")),
                    StartsWith("HTTP/1.1 200 OK"));
        return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    };
    const double first = seconds(), again = seconds();
    EXPECT_LT(again, 0.3);
    EXPECT_LT(again, first / 2);
}

TEST(Serve, RefusesWhatPlanWouldRefuseBeforeItListens) {
    const Said said = say("serve --world 16 --model no-such-model --port 0");
    EXPECT_EQ(said.code, kBadInput);
    EXPECT_THAT(said.err, HasSubstr("no-such-model"));
    EXPECT_THAT(say("serve --world 16 --model llama3-8b --port 70000").err, HasSubstr("--port"));
}

}  // namespace
}  // namespace mgplan::cli::testing::serve_command_test
