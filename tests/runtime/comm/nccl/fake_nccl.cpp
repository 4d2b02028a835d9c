// libnccl.so.2 for processes without GPUs: the entry points that mgplan uses, non-blocking as it asks for. What ranks tell each
// other goes through files of a folder (FAKE_NCCL_FOLDER), one a message; operations wait in CUDA's (faked) streams for
// their partners, for ever, unless their communicator is aborted: as kernels of NCCL do. Operations of a captured stream go into its
// graph, and their communicator neither ends nor is aborted before that graph is gone, as in NCCL. The first message between two ranks of
// a communicator, each way, connects them: the communicator is in progress until the other rank has issued its half, and takes no call.

#include <cuda_runtime_api.h>
#include <nccl.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "runtime/bf16.hpp"

/// fake_cuda.cpp
extern "C" void fake_cuda_graph_holds(void (*gone)(void*), void* data);

namespace {

namespace fs = std::filesystem;

struct Comm {
    std::string name;
    int rank = 0, size = 1;
    std::atomic<bool> aborted = false;
    std::atomic<ncclResult_t> state = ncclSuccess;
    std::uint64_t turn = 0, splits = 0, captured = 0;
    std::map<int, std::uint64_t> sent, received, captured_sent, captured_received;
    std::atomic<int> in_graphs = 0;  ///< operations
    std::atomic<bool> finalized = false;
    std::set<std::pair<int, bool>> connections;  ///< that were asked for: a peer, and whether it is sent to
    std::atomic<int> connecting = 0;

    [[nodiscard]] fs::path file(const std::string& what, int from, int to) const {
        return fs::path(std::getenv("FAKE_NCCL_FOLDER")) / (name + "." + what + "." + std::to_string(from) + "." + std::to_string(to));
    }
    void post(const std::string& what, int to, const void* bytes, std::size_t count) const {
        const fs::path path = file(what, rank, to);
        const fs::path part = path.string() + ".part";
        std::ofstream(part, std::ios::binary).write(static_cast<const char*>(bytes), static_cast<std::streamsize>(count));
        fs::rename(part, path);
    }
    /// Empty when it was aborted.
    [[nodiscard]] std::string collect(const std::string& what, int from) const {
        const fs::path path = file(what, from, rank);
        while (!fs::exists(path)) {
            if (aborted) return {};
            std::this_thread::sleep_for(std::chrono::microseconds{100});
        }
        std::ifstream stream(path, std::ios::binary);
        std::string bytes{std::istreambuf_iterator<char>(stream), {}};
        fs::remove(path);
        return bytes;
    }
    /// What each rank has, in their order; empty when it was aborted.
    [[nodiscard]] std::vector<std::string> exchange(const std::string& what, const void* bytes, std::size_t count) const {
        std::vector<std::string> all;
        for (int peer = 0; peer < size; ++peer) {
            if (peer != rank) post(what, peer, bytes, count);
        }
        for (int peer = 0; peer < size; ++peer) {
            all.push_back(peer == rank ? std::string(static_cast<const char*>(bytes), count) : collect(what, peer));
            if (all.back().size() != count) return {};
        }
        return all;
    }
};
using Shared = std::shared_ptr<Comm>;

std::size_t bytes_of(ncclDataType_t type) {
    switch (type) {
        case ncclFloat64:
        case ncclInt64:
            return 8;
        case ncclFloat32:
        case ncclInt32:
            return 4;
        case ncclBfloat16:
        case ncclFloat16:
            return 2;
        default:
            return 1;
    }
}

/// Sum: what numbers are added in, and rounded from once.
template <class Number, class Sum = Number>
void reduce_as(const std::vector<std::string>& all, std::size_t from, std::size_t count, ncclRedOp_t op, void* to) {
    for (std::size_t i = 0; i < count; ++i) {
        Sum result{};
        for (std::size_t rank = 0; rank < all.size(); ++rank) {
            Number each;
            std::memcpy(&each, all[rank].data() + (from + i) * sizeof(Number), sizeof(Number));
            const auto value = static_cast<Sum>(each);
            result = rank == 0 ? value : op == ncclMax ? std::max(result, value) : static_cast<Sum>(result + value);
        }
        if (op == ncclAvg) result = result / static_cast<Sum>(all.size());
        const auto rounded = static_cast<Number>(result);
        std::memcpy(static_cast<char*>(to) + i * sizeof(Number), &rounded, sizeof(Number));
    }
}

void reduce(ncclDataType_t type, const std::vector<std::string>& all, std::size_t from, std::size_t count, ncclRedOp_t op, void* to) {
    if (all.empty()) return;
    if (type == ncclFloat64) reduce_as<double>(all, from, count, op, to);
    if (type == ncclFloat32) reduce_as<float>(all, from, count, op, to);
    if (type == ncclBfloat16) reduce_as<mgplan::runtime::Bf16, float>(all, from, count, op, to);
    if (type == ncclInt32) reduce_as<std::int32_t>(all, from, count, op, to);
}

bool is_captured(cudaStream_t stream) {
    cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    cudaStreamIsCapturing(stream, &status);
    return status != cudaStreamCaptureStatusNone;
}

/// What an operation's messages are called: one in a graph has another name in each launch.
std::function<std::string()> name_of(const std::string& what, bool captured) {
    if (!captured) return [what] { return what; };
    return [what = "g" + what, launches = std::make_shared<std::uint64_t>(0)] { return what + "." + std::to_string((*launches)++); };
}

struct Step {
    Shared comm;
    std::function<void()> post, collect;
    int peer = -1;  ///< of a message
    bool sends = false;
};
thread_local int depth = 0;

/// ncclTransportP2pSetup(): both ranks tell each other how they are reached, and wait for that. In progress while one does.
ncclResult_t connect(const std::vector<Step>& steps) {
    std::map<Shared, std::vector<std::pair<int, bool>>> fresh;
    for (const Step& each : steps) {
        if (each.peer < 0 || each.peer == each.comm->rank) continue;
        const std::pair connection{each.peer, each.sends};
        if (each.comm->connections.insert(connection).second) fresh[each.comm].push_back(connection);
    }
    for (const auto& [comm, connections] : fresh) {
        ++comm->connecting;
        std::thread([comm = comm, connections = connections] {
            for (const auto& [peer, sends] : connections) comm->post(sends ? "sender" : "receiver", peer, &peer, sizeof(peer));
            for (const auto& [peer, sends] : connections) static_cast<void>(comm->collect(sends ? "receiver" : "sender", peer));
            --comm->connecting;
        }).detach();
    }
    return fresh.empty() ? ncclSuccess : ncclInProgress;
}
thread_local std::vector<std::pair<Step, cudaStream_t>> grouped;

void do_all(const std::vector<Step>& steps) {
    for (const Step& each : steps) each.post();
    for (const Step& each : steps) each.collect();
}

void launch_captured(std::vector<Step> steps, cudaStream_t stream) {
    for (const Step& each : steps) ++each.comm->in_graphs;
    auto* const work = new std::vector<Step>(std::move(steps));
    cudaLaunchHostFunc(
        stream, [](void* data) { do_all(*static_cast<std::vector<Step>*>(data)); }, work);
    fake_cuda_graph_holds(
        [](void* data) {
            const std::unique_ptr<std::vector<Step>> all(static_cast<std::vector<Step>*>(data));
            for (const Step& each : *all) --each.comm->in_graphs;
        },
        work);
}

void launch(std::vector<Step> steps, cudaStream_t stream) {
    if (is_captured(stream)) return launch_captured(std::move(steps), stream);
    auto* const work = new std::vector<Step>(std::move(steps));
    cudaLaunchHostFunc(
        stream,
        [](void* data) {
            const std::unique_ptr<std::vector<Step>> all(static_cast<std::vector<Step>*>(data));
            do_all(*all);
        },
        work);
}

/// Inside a group NCCL tells how the communicator is, which it may be at work on.
ncclResult_t add(Step step, cudaStream_t stream) {
    if (step.comm->connecting > 0) return ncclInvalidArgument;
    if (depth > 0) {
        grouped.emplace_back(std::move(step), stream);
        return ncclInProgress;
    }
    const ncclResult_t result = connect({step});
    launch({std::move(step)}, stream);
    return result;
}

Shared of(ncclComm_t comm) {
    return *reinterpret_cast<Shared*>(comm);
}
ncclComm_t made(Shared comm) {
    return reinterpret_cast<ncclComm_t>(new Shared(std::move(comm)));
}

/// All ranks' bytes to all: what every collective here is made of.
ncclResult_t collective(ncclComm_t handle, const void* from, std::size_t bytes, cudaStream_t stream,
                        const std::function<void(const std::vector<std::string>&)>& then) {
    const Shared comm = of(handle);
    const bool captured = is_captured(stream);
    const auto what = name_of("c" + std::to_string(captured ? comm->captured++ : comm->turn++), captured);
    return add({comm, [] {}, [=] { then(comm->exchange(what(), from, bytes)); }}, stream);
}

}  // namespace

extern "C" {
ncclResult_t ncclGetVersion(int* version) {
    *version = 22809;
    return ncclSuccess;
}
ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
    std::memset(id, 0, sizeof(*id));
    std::snprintf(id->internal, sizeof(id->internal), "world%u", std::random_device{}());
    return ncclSuccess;
}
ncclResult_t ncclCommInitRankConfig(ncclComm_t* out, int size, ncclUniqueId id, int rank, ncclConfig_t* config) {
    if (config->blocking != 0) return ncclInvalidArgument;
    auto comm = std::make_shared<Comm>();
    comm->name = id.internal;
    comm->rank = rank;
    comm->size = size;
    comm->state = ncclInProgress;
    *out = made(comm);
    std::thread([comm] {
        comm->state = comm->exchange("hello", &comm->size, sizeof(int)).empty() ? ncclRemoteError : ncclSuccess;
    }).detach();
    return ncclInProgress;
}
ncclResult_t ncclCommSplit(ncclComm_t handle, int color, int key, ncclComm_t* out, ncclConfig_t* config) {
    if (config->blocking != 0) return ncclInvalidArgument;
    const Shared parent = of(handle);
    parent->state = ncclInProgress;
    const std::string split = "s" + std::to_string(parent->splits++);
    std::thread([=] {
        const int mine[2] = {color, key};
        const auto all = parent->exchange(split, mine, sizeof(mine));
        std::vector<std::pair<int, int>> members;  // key, rank
        for (std::size_t rank = 0; rank < all.size(); ++rank) {
            int other[2];
            std::memcpy(other, all[rank].data(), sizeof(other));
            if (other[0] == color) members.emplace_back(other[1], static_cast<int>(rank));
        }
        std::sort(members.begin(), members.end());
        if (!all.empty() && color != NCCL_SPLIT_NOCOLOR) {
            auto comm = std::make_shared<Comm>();
            comm->name = parent->name + "-" + split + "c" + std::to_string(color);
            comm->size = static_cast<int>(members.size());
            for (int i = 0; i < comm->size; ++i) {
                if (members[static_cast<std::size_t>(i)].second == parent->rank) comm->rank = i;
            }
            std::atomic_ref(*out).store(made(comm), std::memory_order_release);
        }
        parent->state = all.empty() ? ncclRemoteError : ncclSuccess;
    }).detach();
    return ncclInProgress;
}
ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* error) {
    const Shared shared = of(comm);
    const bool works = shared->connecting > 0 || (shared->finalized && shared->in_graphs > 0);
    *error = works ? ncclInProgress : shared->state.load();
    return ncclSuccess;
}
ncclResult_t ncclCommAbort(ncclComm_t comm) {
    const Shared shared = of(comm);
    shared->aborted = true;
    while (shared->in_graphs > 0) std::this_thread::sleep_for(std::chrono::microseconds{100});
    return ncclSuccess;  // and stays: what runs may look at it
}
ncclResult_t ncclCommFinalize(ncclComm_t comm) {
    of(comm)->finalized = true;
    return ncclSuccess;
}
ncclResult_t ncclCommDestroy(ncclComm_t comm) {
    delete reinterpret_cast<Shared*>(comm);
    return ncclSuccess;
}
const char* ncclGetErrorString(ncclResult_t result) {
    return result == ncclRemoteError ? "remote process exited or there was a network error" : "an error of the fake";
}
const char* ncclGetLastError(ncclComm_t /*comm*/) {
    return "of the fake";
}
ncclResult_t ncclGroupStart() {
    ++depth;
    return ncclSuccess;
}
ncclResult_t ncclGroupEnd() {
    if (--depth > 0) return ncclSuccess;
    std::vector<Step> all;
    std::map<cudaStream_t, std::vector<Step>> by_stream;
    for (auto& [step, stream] : grouped) {
        all.push_back(step);
        by_stream[stream].push_back(std::move(step));
    }
    grouped.clear();
    const ncclResult_t result = connect(all);
    for (auto& [stream, steps] : by_stream) launch(std::move(steps), stream);
    return result;
}
ncclResult_t ncclAllReduce(const void* from, void* to, size_t count, ncclDataType_t type, ncclRedOp_t op, ncclComm_t comm,
                           cudaStream_t stream) {
    return collective(comm, from, count * bytes_of(type), stream,
                      [=](const std::vector<std::string>& all) { reduce(type, all, 0, count, op, to); });
}
ncclResult_t ncclReduceScatter(const void* from, void* to, size_t count, ncclDataType_t type, ncclRedOp_t op, ncclComm_t comm,
                               cudaStream_t stream) {
    const auto rank = static_cast<std::size_t>(of(comm)->rank), size = static_cast<std::size_t>(of(comm)->size);
    return collective(comm, from, count * size * bytes_of(type), stream,
                      [=](const std::vector<std::string>& all) { reduce(type, all, rank * count, count, op, to); });
}
ncclResult_t ncclReduce(const void* from, void* to, size_t count, ncclDataType_t type, ncclRedOp_t op, int root, ncclComm_t comm,
                        cudaStream_t stream) {
    const bool takes = of(comm)->rank == root;
    return collective(comm, from, count * bytes_of(type), stream, [=](const std::vector<std::string>& all) {
        if (takes) reduce(type, all, 0, count, op, to);
    });
}
ncclResult_t ncclAllGather(const void* from, void* to, size_t count, ncclDataType_t type, ncclComm_t comm, cudaStream_t stream) {
    const std::size_t bytes = count * bytes_of(type);
    return collective(comm, from, bytes, stream, [=](const std::vector<std::string>& all) {
        for (std::size_t rank = 0; rank < all.size(); ++rank) std::memcpy(static_cast<char*>(to) + rank * bytes, all[rank].data(), bytes);
    });
}
ncclResult_t ncclBroadcast(const void* from, void* to, size_t count, ncclDataType_t type, int root, ncclComm_t handle,
                           cudaStream_t stream) {
    const Shared comm = of(handle);
    const std::size_t bytes = count * bytes_of(type);
    const bool captured = is_captured(stream);
    const auto what = name_of("b" + std::to_string(captured ? comm->captured++ : comm->turn++), captured);
    return add({comm,
                [=] {
                    if (comm->rank != root) return;
                    const std::string name = what();
                    for (int peer = 0; peer < comm->size; ++peer) {
                        if (peer != root) comm->post(name, peer, from, bytes);
                    }
                    std::memmove(to, from, bytes);
                },
                [=] {
                    if (comm->rank == root) return;
                    const std::string got = comm->collect(what(), root);
                    std::memcpy(to, got.data(), std::min(bytes, got.size()));
                }},
               stream);
}
ncclResult_t ncclSend(const void* from, size_t count, ncclDataType_t type, int peer, ncclComm_t handle, cudaStream_t stream) {
    const Shared comm = of(handle);
    const bool captured = is_captured(stream);
    const auto what = name_of("p" + std::to_string((captured ? comm->captured_sent : comm->sent)[peer]++), captured);
    return add({comm, [=] { comm->post(what(), peer, from, count * bytes_of(type)); }, [] {}, peer, true}, stream);
}
ncclResult_t ncclRecv(void* to, size_t count, ncclDataType_t type, int peer, ncclComm_t handle, cudaStream_t stream) {
    const Shared comm = of(handle);
    const bool captured = is_captured(stream);
    const auto what = name_of("p" + std::to_string((captured ? comm->captured_received : comm->received)[peer]++), captured);
    return add({comm, [] {},
                [=] {
                    const std::string got = comm->collect(what(), peer);
                    std::memcpy(to, got.data(), std::min(count * bytes_of(type), got.size()));
                },
                peer, false},
               stream);
}
}
