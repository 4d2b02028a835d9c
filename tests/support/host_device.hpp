#pragma once
// A device of plain host memory for tests that move tensors and compute nothing with them.

#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>
#include <string_view>
#include <vector>

#include "model/device/device.hpp"

namespace mgplan::tests {

class HostAllocator final : public model::Allocator {
public:
    [[nodiscard]] std::byte* take(std::int64_t bytes, model::MemoryCategory /*category*/, std::string_view /*name*/) override {
        constexpr std::size_t kAlignment = 64;
        const std::size_t rounded = (static_cast<std::size_t>(bytes) + kAlignment - 1) / kAlignment * kAlignment;
        void* memory = std::aligned_alloc(kAlignment, rounded);
        if (memory == nullptr) throw std::bad_alloc();
        return static_cast<std::byte*>(memory);
    }
    void give_back(std::byte* memory, std::int64_t /*bytes*/, model::MemoryCategory /*category*/) noexcept override { std::free(memory); }
};

class HostDevice final : public model::Device {
public:
    HostDevice() : Device(model::DeviceKind::cpu, {}, std::make_unique<HostAllocator>(), nullptr) {}

    /// A tensor with these values: float for fp32, double for fp64, std::int32_t for int32, std::uint16_t for bf16 bits.
    template <class Element>
    model::Tensor tensor(const model::Shape& shape, Dtype dtype, const std::vector<Element>& values) {
        model::Tensor tensor = empty(shape, dtype, model::MemoryCategory::communication, "test");
        write(tensor, values.data());
        return tensor;
    }

    template <class Element>
    std::vector<Element> values(const model::Tensor& tensor) {
        std::vector<Element> values(static_cast<std::size_t>(tensor.elements()));
        read(tensor, values.data());
        return values;
    }

private:
    void do_write(void* to, const void* from, std::int64_t bytes) override { std::memcpy(to, from, static_cast<std::size_t>(bytes)); }
    void do_read(void* to, const void* from, std::int64_t bytes) override { std::memcpy(to, from, static_cast<std::size_t>(bytes)); }
    void do_zero(void* memory, std::int64_t bytes) override { std::memset(memory, 0, static_cast<std::size_t>(bytes)); }
};

}  // namespace mgplan::tests
