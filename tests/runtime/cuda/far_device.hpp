#pragma once
// A GPU on the host for arrays of more than 2^31 elements and 2^32 bytes, without their memory: addresses are reserved, and of kernels what
// lies at the ends and around the places where 32 bits end is done.

#include <sys/mman.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <new>
#include <set>
#include <string_view>

#include "model/device/device.hpp"
#include "model/ops/kernel_table.hpp"
#include "runtime/cuda/ops/table.hpp"

namespace mgplan::runtime::cuda {

/// Does all of little work, and of much the ends, and what is around 2^31 and 2^32. See launch.hpp for what a launcher offers.
class EndsLauncher {
public:
    static EndsLauncher& of(model::Device& /*device*/) {
        static EndsLauncher only;
        return only;
    }
    /// Where there are some thousands, each may have all rows of a part to look through.
    template <class Body>
    void each(std::int64_t count, const Body& body) {
        const bool many = count > 1 << 20;
        for (const std::int64_t i : chosen(count, many ? 1024 : 4, many || count <= 2048 ? 2048 : 128)) body(i);
    }
    template <int N, class Body>
    void packs(std::int64_t count, const Body& body) {
        for (const std::int64_t pack : chosen(count / N, 1024, 2048)) body.template finish<N>(pack * N, body.template load<N>(pack * N));
        for (std::int64_t i = count / N * N; i < count; ++i) body.template finish<1>(i, body.template load<1>(i));
    }
    /// A team may have a thousandth of an array to look through.
    template <class Body>
    void teams(std::int64_t count, int lanes, const Body& body) {
        const HostTeam team(lanes);
        for (const std::int64_t i : chosen(count, 4, 64)) body(team, i);
    }
    void copy(void* to, const void* from, std::int64_t bytes) {
        const std::int64_t begin = std::max(bytes - kBytes, std::int64_t{0});
        std::memcpy(static_cast<std::byte*>(to) + begin, static_cast<const std::byte*>(from) + begin,
                    static_cast<std::size_t>(bytes - begin));
    }
    /// What is reserved is zero.
    void zero(void* memory, std::int64_t bytes) { std::memset(memory, 0, static_cast<std::size_t>(std::min(bytes, kBytes))); }

private:
    static constexpr std::int64_t kBytes = 8192;

    static std::set<std::int64_t> chosen(std::int64_t count, std::int64_t first, std::int64_t last) {
        std::set<std::int64_t> list;
        const auto add = [&](std::int64_t begin, std::int64_t end) {
            for (std::int64_t i = std::max(begin, std::int64_t{0}); i < std::min(end, count); ++i) list.insert(i);
        };
        add(0, first);
        add((std::int64_t{1} << 31) - 4, (std::int64_t{1} << 31) + 4);
        add((std::int64_t{1} << 32) - 4, (std::int64_t{1} << 32) + 4);
        add(count - last, count);
        return list;
    }
};

/// Zeros that take memory where they are written.
class ReservedMemory final : public model::Allocator {
public:
    [[nodiscard]] static bool can_reserve(std::int64_t bytes) {
        void* const memory = reserve(bytes);
        if (memory == MAP_FAILED) return false;
        ::munmap(memory, static_cast<std::size_t>(bytes));
        return true;
    }
    [[nodiscard]] std::byte* take(std::int64_t bytes, model::MemoryCategory /*category*/, std::string_view /*name*/) override {
        void* const memory = reserve(bytes);
        if (memory == MAP_FAILED) throw std::bad_alloc();
        ::madvise(memory, static_cast<std::size_t>(bytes), MADV_NOHUGEPAGE);
        return static_cast<std::byte*>(memory);
    }
    void give_back(std::byte* memory, std::int64_t bytes, model::MemoryCategory /*category*/) noexcept override {
        ::munmap(memory, static_cast<std::size_t>(bytes));
    }

private:
    static void* reserve(std::int64_t bytes) {
        return ::mmap(nullptr, static_cast<std::size_t>(bytes), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    }
};

class FarDevice final : public model::Device {
public:
    explicit FarDevice(const model::KernelTraits& traits)
        : Device(model::DeviceKind::cuda, traits, std::make_unique<ReservedMemory>(), &table()) {}

private:
    static const model::KernelTable& table() {
        static const model::KernelTable filled = [] {
            model::KernelTable all{};
            using L = EndsLauncher;
            all.copy = cuda::copy<L>;
            all.add = cuda::add<L>;
            all.scale = cuda::scale<L>;
            all.fill = cuda::fill<L>;
            all.sums_of_squares = cuda::sums_of_squares<L>;
            all.copy_columns = cuda::copy_columns<L>;
            all.scale_columns = cuda::scale_columns<L>;
            all.swap_leading = cuda::swap_leading<L>;
            all.norm = cuda::norm<L>;
            all.norm_backward = cuda::norm_backward<L>;
            all.activation = cuda::activation<L>;
            all.activation_backward = cuda::activation_backward<L>;
            all.gate_rows = cuda::gate_rows<L>;
            all.add_bias = cuda::add_bias<L>;
            all.bias_gradient = cuda::bias_gradient<L>;
            all.rotary = cuda::rotary<L>;
            all.dropout = cuda::dropout<L>;
            all.embedding = cuda::embedding<L>;
            all.row_maximum = cuda::row_maximum<L>;
            all.softmax_sums = cuda::softmax_sums<L>;
            all.cross_entropy_backward = cuda::cross_entropy_backward<L>;
            all.join_latent_keys = cuda::join_latent_keys<L>;
            all.split_latent_keys = cuda::split_latent_keys<L>;
            all.permute_rows = cuda::permute_rows<L>;
            all.unpermute_rows = cuda::unpermute_rows<L>;
            all.reorder_blocks = cuda::reorder_blocks<L>;
            all.adam_step = cuda::adam_step<L>;
            all.momentum_step = cuda::momentum_step<L>;
            all.largest = cuda::largest<L>;
            all.quantise = cuda::quantise<L>;
            all.largest_of_arrays = cuda::largest_of_arrays<L>;
            all.quantise_arrays = cuda::quantise_arrays<L>;
            all.quantise_blocks = cuda::quantise_blocks<L>;
            all.transpose_bytes = cuda::transpose_bytes<L>;
            return all;
        }();
        return filled;
    }
    void do_write(void* to, const void* from, std::int64_t bytes) override { std::memcpy(to, from, static_cast<std::size_t>(bytes)); }
    void do_read(void* to, const void* from, std::int64_t bytes) override { std::memcpy(to, from, static_cast<std::size_t>(bytes)); }
    void do_zero(void* memory, std::int64_t bytes) override { EndsLauncher{}.zero(memory, bytes); }
};

}  // namespace mgplan::runtime::cuda
