// NCCL's ranks as processes that share one card, which NCCL allows where they say that they are on different hosts:
//     NCCL_HOSTID=<one for each> NCCL_SOCKET_IFNAME=lo gpu_all nccl RANK SIZE FOLDER all | leave
// `all` checks sums, gathers, a barrier, a CUDA graph that holds collectives, and messages that wait for each other's receivers. With
// `leave` the last rank dies, and the others must hear of it in time, from a graph that waits for it. FOLDER is empty at the start and the
// same for all. Exits 77 without a GPU.

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include <fmt/core.h>

#include "model/graphs/captured_pass.hpp"
#include "model/ops/elementwise.hpp"
#include "runtime/cuda_loader/cuda_loader.hpp"
#include "tests/gpu/open_sends.hpp"
#include "tests/gpu/programs.hpp"

namespace mgplan {
namespace {

using namespace std::chrono_literals;
using model::Tensor;
using tests::all_are;
using tests::filled;

struct Check {
    int rank = 0, size = 1;
    bool failed = false;

    void that(bool holds, const std::string& what) {
        fmt::print("rank {}: {}{}\n", rank, holds ? "" : "FAILED: ", what);
        failed = failed || !holds;
    }
};

/// Rank 0's bytes through a file.
runtime::Bootstrap through(const std::filesystem::path& folder, int rank) {
    return [folder, rank, turn = 0](const std::vector<std::byte>& mine) mutable {
        const auto file = folder / fmt::format("id.{}", turn++), part = folder / "part";
        if (rank == 0) {
            std::filesystem::create_directories(folder);
            std::ofstream(part, std::ios::binary).write(reinterpret_cast<const char*>(mine.data()), std::ssize(mine));
            std::filesystem::rename(part, file);
        }
        for (const auto until = std::chrono::steady_clock::now() + 20s; !std::filesystem::exists(file);) {
            if (std::chrono::steady_clock::now() > until)
                throw RunError(fmt::format("rank {}: rank 0 never wrote {}", rank, file.string()));
            std::this_thread::sleep_for(10ms);
        }
        std::ifstream stream(file, std::ios::binary);
        const std::string text{std::istreambuf_iterator<char>(stream), {}};
        std::vector<std::byte> bytes(text.size());
        std::transform(text.begin(), text.end(), bytes.begin(), [](char each) { return static_cast<std::byte>(each); });
        return bytes;
    };
}

void check_collectives(Check& check, model::Device& device, model::Communicator& group) {
    const int size = group.size(), rank = group.rank();
    const Tensor sum = filled(device, 1'000'003, static_cast<float>(rank + 1));
    group.all_reduce(sum, model::Reduction::sum);
    check.that(all_are(sum, static_cast<float>(size * (size + 1)) / 2), "all-reduce");
    const Tensor part = filled(device, 1000, static_cast<float>(rank + 1)), whole = filled(device, 1000 * size, 0);
    group.all_gather(part, whole);
    bool right = true;
    for (int member = 0; member < size; ++member) {
        right = right && all_are(whole.slice(1000 * member, 1000 * (member + 1)), static_cast<float>(member + 1));
    }
    check.that(right, "all-gather");
    group.barrier();
    check.that(true, "barrier");
}

void check_open_sends(Check& check, model::Device& device, model::Communicator& group) {
    constexpr std::int64_t kElements = std::int64_t{1} << 24;  // 64 MiB: larger than what NCCL buffers
    check.that(tests::receives_behind_open_sends(device, group, kElements), "messages behind open sends in " + group.group());
}

/// A graph that multiplies by 3 and sums over the group, and sends the half of it round the ring, which must have been done before;
/// beside it a bucket is summed, on a stream of its own.
class Graph {
public:
    Graph(model::Device& device, model::Communicator& group, model::Communicator& beside)
        : device_(device),
          group_(group),
          beside_(beside),
          values_(filled(device, 2000, 1)),
          received_(filled(device, 1000, 0)),
          bucket_(filled(device, 1 << 20, 1)) {
        work();
        static_cast<void>(pass_.capture(
            device, "a graph of this check", {values_, bucket_},
            [this](std::vector<Tensor> inputs) {
                work();
                return inputs;
            },
            known_));
    }
    void replay() {
        model::PassMemory memory;
        static_cast<void>(pass_.replay(device_, {values_, bucket_}, memory));
    }
    /// It was replayed once.
    void check(Check& check) {
        const auto once = static_cast<float>(3 * group_.size());
        check.that(pass_.stretches() == 1, "one graph holds the collectives of a pass");
        check.that(all_are(values_, once * once * once), "sums in a graph");
        check.that(all_are(received_, once * once * once), "messages in a graph");
        const auto size = static_cast<float>(beside_.size());
        check.that(all_are(bucket_, size * size * size), "sums beside a graph's layers");
    }

private:
    void work() {
        const int size = group_.size(), rank = group_.rank();
        const auto bucket = beside_.start_all_reduce(bucket_, model::Reduction::sum);
        model::scale(values_, 3);
        group_.all_reduce(values_, model::Reduction::sum);
        const auto sent = group_.start_send(values_.slice(0, 1000), (rank + 1) % size);
        group_.receive(received_, (rank + size - 1) % size);
        sent->wait();
        bucket->wait();
    }

    model::Device& device_;
    model::Communicator &group_, &beside_;
    Tensor values_, received_, bucket_;
    model::KnownStorages known_;
    model::CapturedPass pass_;
};

/// tests/gpu/correctness.py gives the processes more than these, so that they can say what they waited for.
constexpr std::chrono::seconds kUntilStuck{40}, kUntilHeard{25};

int run(int rank, int size, const std::filesystem::path& folder, bool leave) {
    runtime::CudaModule& module = runtime::cuda_module();
    Check check{rank, size};
    const auto device = module.make_device(0, rank);
    runtime::NcclOptions options;
    // For meeting too, where two processes take turns on a card that both start to use: one that starts slowly has done nothing wrong.
    options.deadline = leave ? kUntilHeard : kUntilStuck;
    std::int64_t free = device->free_bytes();
    const auto tell_bytes = [&](const std::string& of) {
        const std::int64_t now = device->free_bytes();
        fmt::print("rank {}: bytes of the card taken by {}: {}\n", rank, of, free - now);
        free = now;
    };
    const auto world = module.make_nccl_world(*device, rank, size, through(folder, rank), options);
    const model::World view = world->view();
    tell_bytes("the world's communicator, of both ranks");
    std::vector<std::int32_t> ranks(static_cast<std::size_t>(size));
    std::iota(ranks.begin(), ranks.end(), 0);
    const auto group = view.join("tp", ranks), forward = view.join("pp", ranks), backward = view.join("pp-backward", ranks);
    const auto buckets = view.join("dp-cp", ranks);
    tell_bytes("four groups, of both ranks");
    Graph graph(*device, *group, *buckets);
    check_collectives(check, *device, *group);
    if (!leave) {
        graph.replay();
        graph.check(check);
        check_open_sends(check, *device, *forward);
        check_open_sends(check, *device, *backward);
        device->trim();
        tell_bytes("first collectives and messages, with what the pool keeps");
        return check.failed ? 1 : 0;
    }
    if (rank == size - 1) {
        std::this_thread::sleep_for(1s);  // until the others have passed the barrier, which this process still helps with
        std::_Exit(0);
    }
    const auto start = std::chrono::steady_clock::now();
    try {
        graph.replay();
        device->synchronize();
        group->barrier();
        check.that(false, "hears of a rank that died");
    } catch (const model::CommunicationError& error) {
        fmt::print("rank {}: {}\n", rank, error.what());
        check.that(std::chrono::steady_clock::now() - start < kUntilHeard + 10s, "hears of a rank that died, in time");
    }
    return check.failed ? 1 : 0;
}

}  // namespace

int tests::run_gpu_nccl(const std::vector<std::string>& words) {
    if (words.size() != 4 || (words[3] != "all" && words[3] != "leave")) {
        fmt::print(stderr, "usage: gpu_all nccl RANK SIZE FOLDER all | leave\n");
        return 2;
    }
    return run(std::stoi(words[0]), std::stoi(words[1]), words[2], words[3] == "leave");
}

}  // namespace mgplan
