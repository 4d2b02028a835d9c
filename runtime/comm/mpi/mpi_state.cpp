#include "runtime/comm/mpi/mpi_state.hpp"

#include <unistd.h>

#include <array>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <utility>

#include <fmt/core.h>

#include "plan/text/errors.hpp"
#include "plan/text/terminal_text.hpp"

namespace mgplan::runtime {
namespace {

constexpr int kRunFailed = 4;  // the exit code of a run that failed (docs/errors.md)

// Data for the signal handler: addresses of texts that are never freed.
struct LastWords {
    std::atomic<const char*> what = nullptr;
    std::atomic<const char*> group = nullptr;
    std::atomic<bool> inside = false;
    std::array<char, 16> rank{};
};
LastWords last_words;
static_assert(std::atomic<const char*>::is_always_lock_free && std::atomic<bool>::is_always_lock_free);

class Line {
public:
    void add(const char* text) {
        const std::size_t length = std::min(std::strlen(text), text_.size() - 1 - length_);
        std::memcpy(text_.data() + length_, text, length);
        length_ += length;
    }
    void write() {
        text_[length_++] = '\n';
        // The process is about to end: a failure to write cannot be reported.
        [[maybe_unused]] const auto written = ::write(STDERR_FILENO, text_.data(), length_);
    }

private:
    std::array<char, 512> text_{};
    std::size_t length_ = 0;
};

extern "C" void say_last_words(int signal_number) {
    Line line;
    line.add("mgplan: rank ");
    line.add(last_words.rank.data());
    const char* const what = last_words.what;
    const char* const group = last_words.group;
    if (what != nullptr && group != nullptr) {
        line.add(last_words.inside ? ", in " : ", after ");
        line.add(what);
        line.add(" in group ");
        line.add(group);
    }
    line.add(": stopped from outside; another rank may have died");
    line.write();
    std::signal(signal_number, SIG_DFL);
    std::raise(signal_number);
}

template <class Number>
void maximum_of(const void* from, void* to, int count) {
    const auto* a = static_cast<const Number*>(from);
    auto* b = static_cast<Number*>(to);
    for (int i = 0; i < count; ++i) {
        if (a[i] > b[i] || a[i] != a[i]) b[i] = a[i];
    }
}

extern "C" void mpi_maximum(void* from, void* to, int* count, MPI_Datatype* type) {
    if (*type == MPI_DOUBLE) {
        maximum_of<double>(from, to, *count);
    } else {
        maximum_of<float>(from, to, *count);
    }
}

}  // namespace

// --- Whereabouts ---------------------------------------------------------------------------------------------------

Whereabouts::Whereabouts(int rank, const MpiOptions& options) : rank_(rank), options_(options) {
    std::snprintf(last_words.rank.data(), last_words.rank.size(), "%d", rank);
    if (options_.report_when_stopped) std::signal(SIGTERM, say_last_words);
    if (options_.deadline) watcher_ = std::thread([this] { watch(); });
}

Whereabouts::~Whereabouts() {
    if (options_.report_when_stopped) std::signal(SIGTERM, SIG_DFL);
    last_words.what = nullptr;
    if (!watcher_.joinable()) return;
    {
        const std::scoped_lock lock(mutex_);
        stop_ = true;
    }
    changed_.notify_all();
    watcher_.join();
}

void Whereabouts::enter(const char* what, const std::string& group_text) {
    last_words.what = what;
    last_words.group = group_text.c_str();
    last_words.inside = true;
    const std::scoped_lock lock(mutex_);
    last_what_ = what;
    last_group_ = &group_text;
    inside_ = true;
    since_ = std::chrono::steady_clock::now();
}

void Whereabouts::leave() {
    last_words.inside = false;
    const std::scoped_lock lock(mutex_);
    inside_ = false;
}

std::string Whereabouts::text() const {
    const std::scoped_lock lock(mutex_);
    if (last_what_ == nullptr) return "before its first operation";
    return fmt::format("{} {} in group {}", inside_ ? "in" : "after", last_what_, *last_group_);
}

void Whereabouts::watch() {
    std::unique_lock lock(mutex_);
    const auto every = std::max(*options_.deadline / 4, std::chrono::milliseconds{1});
    while (!changed_.wait_for(lock, every, [this] { return stop_; })) {
        if (!inside_ || std::chrono::steady_clock::now() - since_ < *options_.deadline) continue;
        fmt::print(stderr, "mgplan: rank {}, {} in group {}: no progress within the deadline of {} ms\n", rank_, last_what_, *last_group_,
                   options_.deadline->count());
        std::fflush(stderr);
        // The main thread is inside MPI, so MPI_Abort is not ours to call; the launcher ends the others when one fails.
        std::_Exit(kRunFailed);
    }
}

// --- State ---------------------------------------------------------------------------------------------------------

MpiWorld::State::State(MpiOptions wishes) : options(std::move(wishes)), exceptions(std::uncaught_exceptions()) {
    int started = 0;
    MPI_Initialized(&started);
    if (started != 0) throw RunError("MPI was started before: there is one MpiWorld per process");
    int provided = 0;
    if (MPI_Init_thread(nullptr, nullptr, MPI_THREAD_FUNNELED, &provided) != MPI_SUCCESS) throw RunError("MPI_Init_thread failed");
    MPI_Comm_dup(MPI_COMM_WORLD, &world);
    MPI_Comm_set_errhandler(world, MPI_ERRORS_RETURN);
    MPI_Comm_rank(world, &rank);
    MPI_Comm_size(world, &size);
    MPI_Op_create(mpi_maximum, 1, &maximum);
    if (options.expected_size && *options.expected_size != size) {
        const std::string text = fmt::format("by {} there {} {} rank{}, and MPI connects {}; {}", options.expected_by,
                                             *options.expected_size == 1 ? "is" : "are", *options.expected_size,
                                             *options.expected_size == 1 ? "" : "s", size, options.way_out);
        MPI_Finalize();
        throw ConfigError(text);
    }
    whereabouts.emplace(rank, options);
}

MpiWorld::State::~State() {
    int over = 0;
    MPI_Finalized(&over);
    if (over != 0) return;
    if (std::uncaught_exceptions() > exceptions) {
        abort(fmt::format("rank {} failed {}", rank, whereabouts->text()));
    }
    try {
        const std::string& everyone = intern("of all ranks");
        for (auto& sent : under_way) wait(sent.request, "send", everyone);
        MPI_Request barrier = MPI_REQUEST_NULL;
        check(MPI_Ibarrier(world, &barrier), "MPI_Ibarrier", "the end of the run", everyone);
        wait(barrier, "the end of the run", everyone);
    } catch (const std::exception& error) {
        abort(error.what());
    }
    whereabouts.reset();
    MPI_Op_free(&maximum);
    MPI_Comm_free(&world);
    MPI_Finalize();
}

void MpiWorld::State::check(int code, const char* call, const char* what, const std::string& group_text) const {
    if (code == MPI_SUCCESS) return;
    std::array<char, MPI_MAX_ERROR_STRING> text{};
    int length = 0;
    MPI_Error_string(code, text.data(), &length);
    throw model::CommunicationError(fmt::format("rank {}, {} in group {}: {} failed: {}", rank, what, group_text, call,
                                                std::string_view(text.data(), static_cast<std::size_t>(length))));
}

void MpiWorld::State::wait(MPI_Request& request, const char* what, const std::string& group_text, MPI_Status* status) {
    const Whereabouts::Visit visit(*whereabouts, what, group_text);
    constexpr int kYields = 2000;  // some milliseconds; then sleep, so that ranks which compute get the core
    for (int turn = 0;; ++turn) {
        int done = 0;
        check(MPI_Test(&request, &done, status), "MPI_Test", what, group_text);
        if (done != 0) return;
        if (turn < kYields) {
            std::this_thread::yield();
        } else {
            std::this_thread::sleep_for(std::chrono::microseconds{20});
        }
    }
}

void MpiWorld::State::drop_delivered(const std::string& group_text) {
    for (auto sent = under_way.begin(); sent != under_way.end();) {
        int done = 0;
        check(MPI_Test(&sent->request, &done, MPI_STATUS_IGNORE), "MPI_Test", "send", group_text);
        sent = done != 0 ? under_way.erase(sent) : std::next(sent);
    }
}

void MpiWorld::State::send_copy(const void* bytes, std::int64_t count, int peer, MPI_Comm communicator, const std::string& group_text) {
    drop_delivered(group_text);
    const auto* first = static_cast<const std::byte*>(bytes);
    under_way.push_back({MPI_REQUEST_NULL, count == 0 ? std::vector<std::byte>{} : std::vector<std::byte>(first, first + count)});
    Sent& sent = under_way.back();
    check(MPI_Isend(sent.bytes.data(), static_cast<int>(count), MPI_BYTE, peer, 0, communicator, &sent.request), "MPI_Isend", "send",
          group_text);
}

void MpiWorld::State::abort(const std::string& reason, int code) const noexcept {
    std::signal(SIGTERM, SIG_DFL);  // its last words are said here
    static_cast<void>(std::fprintf(stderr, "mgplan: %s\n", terminal_text(reason).c_str()));
    static_cast<void>(std::fflush(stderr));
    MPI_Abort(MPI_COMM_WORLD, code);
    std::_Exit(code);  // MPI_Abort is allowed to return
}

}  // namespace mgplan::runtime
