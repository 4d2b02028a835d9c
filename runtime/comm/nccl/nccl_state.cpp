#include "runtime/comm/nccl/nccl_state.hpp"

#include <algorithm>
#include <exception>
#include <new>
#include <utility>

#include <fmt/core.h>

#include "plan/text/errors.hpp"
#include "runtime/comm/nccl/nccl_library.hpp"
#include "runtime/cuda/check.hpp"

namespace mgplan::runtime::cuda {

using model::CommunicationError;
using std::chrono::steady_clock;

namespace {

/// How long an end waits for partners that may be gone.
constexpr std::chrono::seconds kFarewell{10};
/// Time for which NCCL is polled without a pause until it has issued an operation.
constexpr std::chrono::milliseconds kQuick{1};

std::string text_of(model::CollectiveKind kind, const NcclGroup& group) {
    return fmt::format("{} in group {}", to_string(kind), group.text);
}

}  // namespace

NcclTicket::NcclTicket(std::string text) : what(std::move(text)) {
    MGPLAN_CUDA(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
}

NcclTicket::~NcclTicket() {
    if (event != nullptr) static_cast<void>(cudaEventDestroy(event));
}

NcclState::NcclState(CudaDevice& device, int rank, NcclOptions options)
    : device_(device), rank_(rank), options_(std::move(options)), exceptions_(std::uncaught_exceptions()) {
    MGPLAN_CUDA(cudaEventCreateWithFlags(&ready_, cudaEventDisableTiming));
    MGPLAN_CUDA(cudaStreamCreateWithFlags(&captured_, cudaStreamNonBlocking));
    watchdog_ = std::thread([this] { watch_over(); });
}

NcclState::~NcclState() {
    if (std::uncaught_exceptions() > exceptions_) {
        // Held and running operations may need partners that will never come: nothing is waited for.
        abort(fmt::format("rank {} was ended by an error", rank_));
    } else {
        try {
            flush();
            if (!abort_reason_.given() && idle_by(steady_clock::now() + options_.deadline)) say_farewell();
        } catch (...) {  // whoever waited for it has heard of it
        }
    }
    {
        const std::scoped_lock lock(mutex_);
        stopping_ = true;
    }
    stop_.notify_all();
    watchdog_.join();
    end_communicators();
    for (std::thread& ender : enders_) ender.join();
    const bool idle = idle_by(steady_clock::now() + kFarewell);  // kernels of aborted communicators end by themselves
    running_.clear();
    if (captured_ != nullptr) static_cast<void>(cudaStreamDestroy(captured_));
    for (const auto& group : groups_) {
        if (group->stream != nullptr) static_cast<void>(cudaStreamDestroy(group->stream));
        // A thread of NCCL's may still write into what was never finished.
        if (!group->made) static_cast<void>(new (std::nothrow) std::shared_ptr<NcclGroup>(group));
    }
    if (ready_ != nullptr) static_cast<void>(cudaEventDestroy(ready_));
    if (flag_ != nullptr && idle) static_cast<void>(cudaFree(flag_));  // it would wait for the card
}

void* NcclState::flag(std::size_t place) {
    MGPLAN_ASSERT(place < kFlags, "there are so many");
    if (flag_ == nullptr) {
        MGPLAN_CUDA(cudaMalloc(&flag_, kFlags * sizeof(float)));
        MGPLAN_CUDA(cudaMemset(flag_, 0, kFlags * sizeof(float)));
    }
    return static_cast<float*>(flag_) + place;
}

std::shared_ptr<NcclGroup> NcclState::group_at(std::size_t i) noexcept {
    const std::scoped_lock lock(mutex_);
    return i < groups_.size() ? groups_[i] : nullptr;
}

/// Returns true if all issued operations are done, including graphs, which run on the device's stream. Clears CUDA's last error:
/// "not ready" is kept there, and the thread's next launch would report it.
bool NcclState::idle() noexcept {
    const struct Forget {
        ~Forget() { static_cast<void>(cudaGetLastError()); }
    } forget{};
    for (std::size_t i = 0;; ++i) {
        const auto group = group_at(i);
        if (group == nullptr) break;
        if (group->stream != nullptr && cudaStreamQuery(group->stream) == cudaErrorNotReady) return false;
    }
    const std::scoped_lock lock(mutex_);
    return std::none_of(running_.begin(), running_.end(),
                        [](const auto& ticket) { return cudaEventQuery(ticket->event) == cudaErrorNotReady; });
}

/// Waits until idle() is true, at most until `until`; returns false if it is not by then or the world is aborted meanwhile.
bool NcclState::idle_by(steady_clock::time_point until) noexcept {
    const bool aborted_before = abort_reason_.given();
    while (!idle()) {
        if (steady_clock::now() > until || abort_reason_.given() != aborted_before) return false;
        std::this_thread::sleep_for(std::chrono::microseconds{200});
    }
    return true;
}

/// The GPU's part being done, NCCL's own threads may still be sending the last pieces: finalizing waits for them and for
/// the partners. Not for ever: one that was left early never comes.
void NcclState::say_farewell() {
    const auto until = steady_clock::now() + kFarewell;
    for (std::size_t i = 0;; ++i) {
        const auto group = group_at(i);
        if (group == nullptr) break;
        const std::scoped_lock lock(api_);
        if (abort_reason_.given()) return;
        if (group->made && group->live() != nullptr) static_cast<void>(nccl().ncclCommFinalize(group->live()));
    }
    for (std::size_t i = 0;; ++i) {
        const auto group = group_at(i);
        if (group == nullptr) return;
        for (;;) {
            {
                const std::scoped_lock lock(api_);
                ncclResult_t result = ncclSuccess;
                if (abort_reason_.given() || !group->made || group->live() == nullptr) break;
                if (nccl().ncclCommGetAsyncError(group->live(), &result) != ncclSuccess) break;
                if (result == ncclSuccess) static_cast<void>(nccl().ncclCommDestroy(group->take()));
                if (result != ncclInProgress) break;
            }
            if (steady_clock::now() > until) return;
            std::this_thread::sleep_for(std::chrono::microseconds{200});
        }
    }
}

/// Aborts all communicators that exist. Waits for the lock at most kFarewell, because a call of the rank's thread may never return.
/// Each has a thread of its own: ncclCommAbort() ends the kernels that run and then waits until the graphs with the communicator's
/// operations are destroyed (commDestroySync() in NCCL's init.cc), while the rank's thread, which destroys them, may wait for kernels
/// of another communicator that must be ended too.
void NcclState::end_communicators() noexcept {
    std::unique_lock lock(api_, std::defer_lock);
    static_cast<void>(lock.try_lock_for(kFarewell));
    for (std::size_t i = 0;; ++i) {
        const auto group = group_at(i);
        if (group == nullptr) return;
        const ncclComm_t communicator = group->take();
        if (communicator == nullptr) continue;
        const auto end = [communicator, ordinal = device_.ordinal()] {
            static_cast<void>(cudaSetDevice(ordinal));
            static_cast<void>(nccl().ncclCommAbort(communicator));
        };
        try {
            const std::scoped_lock list(mutex_);
            enders_.emplace_back(end);
        } catch (...) {  // no memory for a thread
            end();
        }
    }
}

std::shared_ptr<NcclGroup> NcclState::prepare(std::string text, bool beside_layers) {
    auto group = std::make_shared<NcclGroup>();
    group->text = std::move(text);
    group->beside_layers = beside_layers;
    const std::scoped_lock lock(mutex_);
    groups_.push_back(group);
    return group;
}

void NcclState::made(NcclGroup& group) {
    if (group.live() != nullptr) MGPLAN_CUDA(cudaStreamCreateWithFlags(&group.stream, cudaStreamNonBlocking));
    group.made = true;
}

void NcclState::fail(NcclGroup& group, ncclResult_t result, const std::string& what) {
    std::string words = "no communicator";
    {
        const std::scoped_lock lock(api_);
        if (group.live() != nullptr) words = nccl().ncclGetLastError(group.live());
    }
    const std::string reason = fmt::format("rank {}: {} failed: {} ({})", rank_, what, nccl().ncclGetErrorString(result), words);
    abort(reason);
    throw CommunicationError(reason);
}

void NcclState::perform(NcclGroup& group, const std::function<ncclResult_t()>& call, const std::string& what) {
    ncclResult_t result = ncclSuccess;
    {
        const std::scoped_lock lock(api_);
        if (!abort_reason_.given()) result = call();
    }
    abort_reason_.check(rank_, what);
    settle(group, result, what);
}

void NcclState::settle(NcclGroup& group, ncclResult_t result, const std::string& what) {
    const auto since = steady_clock::now(), until = since + options_.deadline;
    while (result == ncclInProgress) {
        {
            const std::scoped_lock lock(api_);
            // Not made yet, or taken away by an abort: then it must not be polled.
            if (const ncclComm_t communicator = group.live(); communicator != nullptr) {
                if (const auto error = nccl().ncclCommGetAsyncError(communicator, &result); error != ncclSuccess) result = error;
            }
        }
        abort_reason_.check(rank_, what);
        if (result != ncclInProgress) break;
        const auto now = steady_clock::now();
        if (now > until) {
            const std::string reason = fmt::format("rank {}: {} took longer than {} ms", rank_, what, options_.deadline.count());
            abort(reason);
            throw CommunicationError(reason);
        }
        // Without blocking, an operation is issued by a thread of NCCL's: that takes microseconds, and a sleep many times as long.
        if (now - since < kQuick) {
            std::this_thread::yield();
        } else {
            std::this_thread::sleep_for(std::chrono::microseconds{50});
        }
    }
    if (result != ncclSuccess) fail(group, result, what);
}

bool NcclState::captures() const {
    cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    MGPLAN_CUDA(cudaStreamIsCapturing(device_.stream(), &status));
    return status != cudaStreamCaptureStatusNone;
}

void NcclState::behind_the_device(NcclGroup& group) {
    MGPLAN_CUDA(cudaEventRecord(ready_, device_.stream()));
    MGPLAN_CUDA(cudaStreamWaitEvent(stream_of(group), ready_, 0));
}

void NcclState::issued(const std::shared_ptr<NcclTicket>& ticket, const NcclGroup& group) {
    MGPLAN_CUDA(cudaEventRecord(ticket->event, stream_of(group)));
    ticket->issued = true;
    if (!captures()) return watch(ticket);
    const auto known = std::find_if(recorded_.begin(), recorded_.end(), [&](const auto& each) { return each.first == ticket->what; });
    if (known == recorded_.end()) {
        recorded_.emplace_back(ticket->what, 1);
    } else {
        ++known->second;
    }
}

void NcclState::watch(const std::shared_ptr<NcclTicket>& ticket) {
    ticket->since = steady_clock::now();
    const std::scoped_lock lock(mutex_);
    running_.push_back(ticket);
}

std::shared_ptr<NcclTicket> NcclState::issue(NcclGroup& group, model::CollectiveKind kind, const std::function<ncclResult_t()>& call) {
    flush();  // held operations are issued before this one, as on the other members
    auto ticket = std::make_shared<NcclTicket>(text_of(kind, group));
    abort_reason_.check(rank_, ticket->what);
    behind_the_device(group);
    perform(group, call, ticket->what);
    issued(ticket, group);
    return ticket;
}

std::shared_ptr<NcclTicket> NcclState::hold(std::shared_ptr<NcclGroup> group, model::CollectiveKind kind,
                                            std::function<ncclResult_t()> call, std::string what) {
    auto ticket = std::make_shared<NcclTicket>(what.empty() ? text_of(kind, *group) : std::move(what));
    abort_reason_.check(rank_, ticket->what);
    behind_the_device(*group);
    held_.push_back({std::move(group), ticket, kind == model::CollectiveKind::send, captures(), std::move(call)});
    std::ptrdiff_t sends = 0;
    for (const Held& each : held_) sends += each.sends ? 1 : -1;
    if (sends == 0) flush();
    return ticket;
}

void NcclState::flush() {
    if (held_.empty()) return;
    const std::vector<Held> held = std::exchange(held_, {});
    ncclResult_t result = ncclSuccess;
    {
        const std::scoped_lock lock(api_);
        if (!abort_reason_.given()) {
            result = nccl().ncclGroupStart();
            for (const Held& each : held) {
                MGPLAN_ASSERT(each.captured == captures(), "a message is issued in the capture that held it back, or outside of all");
                if (is_taken(result)) result = each.call();
            }
            const ncclResult_t ended = nccl().ncclGroupEnd();
            if (is_taken(result)) result = ended;
        }
    }
    abort_reason_.check(rank_, held.front().ticket->what);
    for (const Held& each : held) {
        settle(*each.group, result, each.ticket->what);
        issued(each.ticket, *each.group);
    }
}

void NcclState::wait(NcclTicket& ticket) {
    if (!ticket.issued) flush();
    abort_reason_.check(rank_, ticket.what);
    MGPLAN_CUDA(cudaStreamWaitEvent(device_.stream(), ticket.event, 0));
}

std::string NcclState::take_recorded() {
    std::string text;
    for (const auto& [what, times] : std::exchange(recorded_, {})) {
        text += fmt::format("{}{}", text.empty() ? "" : ", ", what);
        if (times > 1) text += fmt::format(" ({} times)", times);
    }
    return text;
}

void NcclState::before_launch(const std::string& graph) {
    flush();
    abort_reason_.check(rank_, graph);
}

void NcclState::launched(const std::string& graph) {
    const auto ticket = std::make_shared<NcclTicket>(graph);
    MGPLAN_CUDA(cudaEventRecord(ticket->event, device_.stream()));
    watch(ticket);
}

void NcclState::abort(const std::string& reason) noexcept {
    if (abort_reason_.set(reason)) end_communicators();
}

/// Returns the reason to end the world; empty if there is none. Drops operations that are done.
std::string NcclState::trouble() {
    if (abort_reason_.given()) return {};
    if (options_.ended) {
        if (std::string why = options_.ended(); !why.empty()) return why;
    }
    // Skipped while the rank's thread is inside NCCL: it sees errors of its own calls, and this function is called again.
    if (const std::unique_lock lock(api_, std::try_to_lock); lock) {
        for (std::size_t i = 0;; ++i) {
            const auto group = group_at(i);
            if (group == nullptr) break;
            const ncclComm_t communicator = group->made ? group->live() : nullptr;
            ncclResult_t result = ncclSuccess;
            if (communicator == nullptr || nccl().ncclCommGetAsyncError(communicator, &result) != ncclSuccess) continue;
            if (result != ncclSuccess && result != ncclInProgress) {
                return fmt::format("rank {}: group {} failed: {} ({})", rank_, group->text, nccl().ncclGetErrorString(result),
                                   nccl().ncclGetLastError(communicator));
            }
        }
    }
    const std::scoped_lock lock(mutex_);
    const auto now = steady_clock::now();
    for (auto ticket = running_.begin(); ticket != running_.end();) {
        const cudaError_t status = cudaEventQuery((*ticket)->event);
        if (status == cudaSuccess) {
            ticket = running_.erase(ticket);
            continue;
        }
        const std::string what = fmt::format("rank {}: {}", rank_, (*ticket)->what);
        if (status != cudaErrorNotReady)
            return fmt::format("{} failed: {} ({})", what, cudaGetErrorName(status), cudaGetErrorString(status));
        if (now - (*ticket)->since > options_.deadline) {
            return fmt::format("{} was not done after {} ms; a partner is dead or hangs", what, options_.deadline.count());
        }
        ++ticket;
    }
    return {};
}

void NcclState::watch_over() {
    static_cast<void>(cudaSetDevice(device_.ordinal()));
    name_rank_of_this_thread(rank_);
    for (;;) {
        {
            std::unique_lock lock(mutex_);
            stop_.wait_for(lock, std::chrono::milliseconds{50}, [this] { return stopping_; });
            if (stopping_) return;
        }
        try {
            if (const std::string why = trouble(); !why.empty()) abort(why);
        } catch (const std::exception& error) {
            abort(error.what());
        }
    }
}

}  // namespace mgplan::runtime::cuda
