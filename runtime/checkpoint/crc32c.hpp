#pragma once
// CRC-32C (Castagnoli, polynomial 0x1EDC6F41, reflected; RFC 3720 appendix B.4): finds every error of up to 32 bits in a row,
// and x86-64 processors have an instruction for it, so that a checksum costs less than the disk.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace mgplan::runtime {

/// Checksum of bytes that follow those with checksum `before`; 0: of these bytes alone.
[[nodiscard]] std::uint32_t crc32c(std::span<const std::byte> bytes, std::uint32_t before = 0);
[[nodiscard]] std::uint32_t crc32c(std::string_view text);
/// The same from a table, on any processor.
[[nodiscard]] std::uint32_t crc32c_portable(std::span<const std::byte> bytes, std::uint32_t before = 0);

/// Eight hexadecimal digits, and back; nothing for any other text.
[[nodiscard]] std::string checksum_text(std::uint32_t checksum);
[[nodiscard]] std::optional<std::uint32_t> parse_checksum(std::string_view text);

}  // namespace mgplan::runtime
