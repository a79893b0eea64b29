//! The four fixed tests of a header: deconstruct, construct, parse, emit; and the lengths that are too short.
//!
//! Buffers hold 0xa5 before anything is written to them, so that a byte left out or written too far shows.

macro_rules! four_header_tests {
    ($header:ty, bytes: $bytes:expr, layout: $layout:expr, value: $value:expr $(,)?) => {
        const TEST_LENGTH: usize = <$header as $crate::Header>::LENGTH;
        const TEST_BYTES: [u8; TEST_LENGTH] = $bytes;

        #[test]
        fn deconstruct() {
            use zerocopy::FromBytes;
            let layout = <$header as $crate::Header>::Layout::ref_from_bytes(&TEST_BYTES).unwrap();
            assert_eq!(*layout, $layout);
        }

        #[test]
        fn construct() {
            use zerocopy::IntoBytes;
            let mut buffer = [0xa5; TEST_LENGTH + 4];
            $layout.write_to_prefix(&mut buffer).unwrap();
            assert_eq!(buffer[..TEST_LENGTH], TEST_BYTES);
            assert_eq!(buffer[TEST_LENGTH..], [0xa5; 4]);
        }

        #[test]
        fn parse() {
            let buffer = [&TEST_BYTES[..], &[0xa5; 4]].concat();
            let (value, rest) = <$header as $crate::Header>::parse(&buffer).unwrap();
            assert_eq!(value, $value);
            assert_eq!(rest, [0xa5; 4]);
        }

        #[test]
        fn emit() {
            let mut buffer = [0xa5; TEST_LENGTH + 4];
            let rest = $crate::Header::emit(&$value, &mut buffer).unwrap();
            assert_eq!(rest, [0xa5; 4]);
            assert_eq!(buffer[..TEST_LENGTH], TEST_BYTES);
        }

        #[test]
        fn impossible_lengths() {
            for length in 0..TEST_LENGTH {
                let mut buffer = vec![0xa5; length];
                assert!(<$header as $crate::Header>::parse(&buffer).is_none());
                assert!($crate::Header::emit(&$value, &mut buffer).is_none());
                assert!(buffer.iter().all(|byte| *byte == 0xa5));
            }
        }
    };
}

pub(crate) use four_header_tests;
