#include "runtime/checkpoint/crc32c.hpp"

#include <array>
#include <charconv>
#include <cstring>

#include <fmt/core.h>

#if defined(__x86_64__) && defined(__GNUC__)
#define MGPLAN_HAVE_CRC_INSTRUCTION 1
#endif

namespace mgplan::runtime {
namespace {

constexpr std::uint32_t kReflectedPolynomial = 0x82F63B78U;

/// table[k][b]: change of the checksum by a byte b with k bytes after it, so that eight bytes are read at once.
constexpr auto kTables = [] {
    std::array<std::array<std::uint32_t, 256>, 8> tables{};
    for (std::uint32_t byte = 0; byte < 256; ++byte) {
        std::uint32_t value = byte;
        for (int bit = 0; bit < 8; ++bit) value = (value >> 1U) ^ ((value & 1U) != 0 ? kReflectedPolynomial : 0);
        tables[0][byte] = value;
    }
    for (std::size_t k = 1; k < tables.size(); ++k) {
        for (std::size_t byte = 0; byte < 256; ++byte)
            tables[k][byte] = (tables[k - 1][byte] >> 8U) ^ tables[0][tables[k - 1][byte] & 0xFFU];
    }
    return tables;
}();

std::uint32_t by_table(const std::byte* data, std::size_t size, std::uint32_t value) {
    while (size >= 8) {
        std::array<std::uint8_t, 8> b{};
        std::memcpy(b.data(), data, 8);
        for (std::size_t i = 0; i < 4; ++i) b[i] ^= static_cast<std::uint8_t>(value >> (8 * i));
        value = 0;
        for (std::size_t i = 0; i < 8; ++i) value ^= kTables[7 - i][b[i]];
        data += 8;
        size -= 8;
    }
    for (; size > 0; --size, ++data) value = (value >> 8U) ^ kTables[0][(value ^ static_cast<std::uint8_t>(*data)) & 0xFFU];
    return value;
}

#ifdef MGPLAN_HAVE_CRC_INSTRUCTION
[[gnu::target("sse4.2")]] std::uint32_t by_instruction(const std::byte* data, std::size_t size, std::uint32_t value) {
    std::uint64_t wide = value;
    for (; size >= 8; size -= 8, data += 8) {
        std::uint64_t next = 0;
        std::memcpy(&next, data, 8);
        wide = __builtin_ia32_crc32di(wide, next);
    }
    value = static_cast<std::uint32_t>(wide);
    for (; size > 0; --size, ++data) value = __builtin_ia32_crc32qi(value, static_cast<std::uint8_t>(*data));
    return value;
}
#endif

}  // namespace

std::uint32_t crc32c_portable(std::span<const std::byte> bytes, std::uint32_t before) {
    return ~by_table(bytes.data(), bytes.size(), ~before);
}

std::uint32_t crc32c(std::span<const std::byte> bytes, std::uint32_t before) {
#ifdef MGPLAN_HAVE_CRC_INSTRUCTION
    static const bool has_instruction = __builtin_cpu_supports("sse4.2") != 0;
    if (has_instruction) return ~by_instruction(bytes.data(), bytes.size(), ~before);
#endif
    return crc32c_portable(bytes, before);
}

std::uint32_t crc32c(std::string_view text) {
    return crc32c(std::as_bytes(std::span(text)));
}

std::string checksum_text(std::uint32_t checksum) {
    return fmt::format("{:08x}", checksum);
}

std::optional<std::uint32_t> parse_checksum(std::string_view text) {
    std::uint32_t value = 0;
    if (text.size() != 8) return std::nullopt;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, 16);
    if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
    return value;
}

}  // namespace mgplan::runtime

#undef MGPLAN_HAVE_CRC_INSTRUCTION
